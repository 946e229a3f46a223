// Say how long ago something was.
// expect: "3 days ago"
const now = new Date('2024-03-10T00:00:00Z');
const days = Math.round((new Date('2024-03-07').getTime() - now.getTime()) / 86_400_000);
return new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(days, 'day');
