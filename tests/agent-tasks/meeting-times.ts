// Show one moment in three cities.
// expect: {"New York":"10:30 AM EDT","Berlin":"4:30 PM GMT+2","Tokyo":"11:30 PM GMT+9"}
const at = new Date('2024-07-01T14:30:00Z');
const zones = { 'New York': 'America/New_York', Berlin: 'Europe/Berlin', Tokyo: 'Asia/Tokyo' };
return Object.fromEntries(Object.entries(zones).map(([city, timeZone]) => [city, new Intl.DateTimeFormat('en-US', { timeZone, hour: 'numeric', minute: '2-digit', timeZoneName: 'short' }).format(at)]));
