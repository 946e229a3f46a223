// `datetime` is text.
const now = await time.getCurrentTime({ timezone: 'Etc/UTC' });
return now.datetime.toISOString();
