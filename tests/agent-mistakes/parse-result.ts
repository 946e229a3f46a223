// The result is no text.
const config = JSON.parse(await files.readTextFile({ path: `${context.place}/config.json` }));
return config.port;
