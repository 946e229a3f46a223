// Use types, an enum, a class and generics.
// expect: [2]
```ts
enum Level { Low = 'low', High = 'high' }
interface Item<T> { value: T; level: Level }
class Box<T> { constructor(private readonly items: Item<T>[]) {} get high(): T[] { return this.items.filter((i) => i.level === Level.High).map((i) => i.value); } }
const box = new Box<number>([{ value: 1, level: Level.Low }, { value: 2, level: Level.High }]);
return box.high satisfies number[];
```
