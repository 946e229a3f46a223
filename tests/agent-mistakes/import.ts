// There are no modules.
import { readFile } from 'fs/promises';
const text = await readFile('a.txt', 'utf8');
return text;
