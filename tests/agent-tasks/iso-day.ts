// Get the day in a zone in ISO form.
// expect: "2024-03-06"
return new Date('2024-03-05T23:30:00Z').toLocaleDateString('en-CA', { timeZone: 'Europe/Berlin' });
