// The member is `datetime`.
const now = await time.getCurrentTime({ timezone: 'Europe/Zurich' });
const hour = now.time.split(':')[0];
return Number(hour);
