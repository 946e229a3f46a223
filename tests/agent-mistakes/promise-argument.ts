// The inner call is not awaited.
await files.writeFile({ path: `${context.place}/now.txt`, content: time.getCurrentTime({ timezone: 'Etc/UTC' }) });
return 'written';
