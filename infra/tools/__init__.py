"""Programs that run outside the product: installation, image digests, the documents as a site."""
