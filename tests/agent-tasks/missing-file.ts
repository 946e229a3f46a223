// Handle a missing file.
// expect: [true,"files:read_text_file",true]
try {
  await files.readTextFile({ path: `${context.place}/nowhere.txt` });
  return 'found';
} catch (error) {
  return [error instanceof MCPToolError, error.toolName, error.message.includes('nowhere.txt') || error.message.includes('ENOENT')];
}
