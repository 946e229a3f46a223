// There is no network.
const now = await time.getCurrentTime({ timezone: 'Etc/UTC' });
const response = await fetch('https://example.com/?' + now.datetime);
return response.status;
