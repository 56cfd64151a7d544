// Put the page together: one store, one stream, and the parts of the page that show what is in it.

import { openStream } from "./live_stream.js";
import { LiveStore } from "./live_store.js";
import { OrderDesk } from "./give_orders.js";
import { OverlayMap } from "./show_map.js";
import { showBanners } from "./show_banners.js";
import { showCharts } from "./show_charts.js";
import { showHeadline } from "./show_headline.js";
import { showReview } from "./show_review.js";
import { showSide } from "./show_side.js";
import { showTabs } from "./show_tabs.js";

const store = new LiveStore();
const desk = new OrderDesk(store);
const map = new OverlayMap(store);

showBanners(store);
showHeadline(store, desk);
showReview(store, desk, map);
showSide(store, desk, map);
const charts = showCharts(store);
showTabs(store, desk, map);
openStream(store, () => desk.signInToRead());

// For measuring and for tests: what is shown, and how long drawing took.
window.regraft = { store, map, charts };
