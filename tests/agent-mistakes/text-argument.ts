// A tool takes one object.
const echoed = await everything.echo('hello');
return echoed;
