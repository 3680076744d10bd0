// Excerpts under search results are fetched, which a browser refuses for files opened without a server.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
