// Convert a time between zones with the server, and again with `Intl`.
// expect: ["+3.5h","15:30"]
const converted = await time.convertTime({ sourceTimezone: 'Asia/Kolkata', time: '12:00', targetTimezone: 'Asia/Tokyo' });
const there = new Date(converted.target.datetime).toLocaleTimeString('en-GB', { timeZone: 'Asia/Tokyo', hour: '2-digit', minute: '2-digit' });
return [converted.time_difference, there];
