// Use a structured result.
// expect: "number"
const weather = await everything.getStructuredContent({ location: 'New York' });
return typeof weather.temperature;
