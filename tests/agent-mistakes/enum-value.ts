// The location is not one of the three.
const weather = await everything.getStructuredContent({ location: 'Boston' });
return weather.temperature;
