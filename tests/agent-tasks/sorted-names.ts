// Sort names as people do.
// expect: ["ämil","anna","Bob","Émile","item 9","item 10","Zoe"]
const names = ['Zoe', 'ämil', 'anna', 'Émile', 'Bob', 'item 10', 'item 9'];
return names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
