// Print a report and return nothing.
// expect: null
// log:   files: true
console.group('Report');
console.log('files:', (await files.listAllowedDirectories()).content.length > 0);
console.groupEnd();
console.count('done');
