// The connection to the server: opened again whenever it breaks, and taken for broken when nothing comes any more.

const SILENCE_MS_MAX = 12000; // The server says something each 5 s at least.
const PAUSE_MS_MIN = 1000;
const PAUSE_MS_MAX = 15000;

// Where reading needs a token, `signIn` is asked for one; it returns once somebody has signed in.
export function openStream(store, signIn) {
  let source = null;
  let pauseMs = PAUSE_MS_MIN;
  let heardMs = Date.now();

  function open() {
    source = new EventSource("/api/stream");
    heardMs = Date.now();
    source.addEventListener("snapshot", (event) => take(event));
    source.addEventListener("change", (event) => take(event));
    source.addEventListener("beat", (event) => {
      store.setClock(JSON.parse(event.data).now_ms);
      hear();
    });
    source.addEventListener("error", () => {
      store.setLink(false);
      // What the browser has given up it does not open again; otherwise it tries by itself.
      if (source.readyState === EventSource.CLOSED) reopen();
    });
  }

  function take(event) {
    store.take(JSON.parse(event.data));
    hear();
  }

  function hear() {
    heardMs = Date.now();
    pauseMs = PAUSE_MS_MIN;
    store.setLink(true);
  }

  async function openOnceAllowed() {
    try {
      const answer = await fetch("/api/access", { signal: AbortSignal.timeout(SILENCE_MS_MAX) });
      if ((await answer.json()).may_read === false) {
        store.setNeedsLogin(true);
        await signIn();
        store.setNeedsLogin(false);
      }
    } catch { /* It does not answer: neither will the stream, which then tries again. */ }
    open();
  }

  function reopen() {
    source.close();
    source = null;
    setTimeout(openOnceAllowed, pauseMs);
    pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX);
  }

  setInterval(() => {
    if (source === null || Date.now() - heardMs < SILENCE_MS_MAX) return;
    store.setLink(false);
    reopen();
  }, 1000);
  openOnceAllowed();
}
