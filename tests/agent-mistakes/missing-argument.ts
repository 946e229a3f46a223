// `timezone` is required.
const now = await time.getCurrentTime();
return now.datetime;
