// Prints names and patterns of four locales as JSON, as the running Node has them.
// Usage: node tools/intl-data.mjs > crates/bascule-script/src/intl_data.json
const LOCALES = ['en-US', 'en-GB', 'de-DE', 'fr-FR'];
const AT = new Date(Date.UTC(2024, 2, 5, 3, 7, 9)); // all fields are below ten

// Returns the pattern of a format: field names in braces, doubled where the field has two digits.
function pattern(locale, options, date = AT) {
  const asked = { year: options.year, month: options.month, day: options.day, hour: options.hour };
  return new Intl.DateTimeFormat(locale, { timeZone: 'UTC', ...options }).formatToParts(date).map(({ type, value }) => {
    if (type === 'literal') return value;
    const isPadded = /^0\d$/.test(value) && asked[type] === 'numeric';
    const isShort = type === 'year' && value.length === 2 && asked.year !== '2-digit';
    return `{${type}${isPadded ? '+' : isShort ? '-' : ''}}`;
  }).join('');
}

function dates(locale) {
  const found = {};
  for (const weekday of [undefined, 'short', 'long']) {
    for (const year of [undefined, 'numeric']) {
      for (const month of [undefined, 'numeric', '2-digit', 'short', 'long']) {
        for (const day of [undefined, 'numeric', '2-digit']) {
          if (!weekday && !year && !month && !day) continue;
          const key = [weekday ? weekday[0] : '', year ? 'y' : '', month ? { numeric: 'n', '2-digit': '2', short: 's', long: 'l' }[month] : '', day ? { numeric: 'd', '2-digit': 'D' }[day] : ''];
          found[key.join('.')] = pattern(locale, { weekday, year, month, day });
        }
      }
    }
  }
  return found;
}

function times(locale) {
  const found = {};
  for (const hour12 of [true, false]) {
    for (const fields of ['h', 'm', 's', 'hm', 'ms', 'hms']) {
      for (const hour of fields.includes('h') ? ['numeric', '2-digit'] : [undefined]) {
        const options = { hour12, hour, minute: fields.includes('m') ? 'numeric' : undefined, second: fields.includes('s') ? 'numeric' : undefined };
        found[(hour12 ? '12' : '24') + fields + (hour === '2-digit' ? '2' : '')] = pattern(locale, options);
      }
    }
  }
  return found;
}

// The text between date and time.
function glue(locale) {
  const joined = (month, extra = {}) => {
    const parts = new Intl.DateTimeFormat(locale, { timeZone: 'UTC', year: 'numeric', month, day: 'numeric', hour: 'numeric', minute: 'numeric', ...extra }).formatToParts(AT);
    const at = parts.findIndex(({ type }) => type === 'hour');
    return parts[at - 1].value;
  };
  const styled = (dateStyle) => {
    const parts = new Intl.DateTimeFormat(locale, { timeZone: 'UTC', dateStyle, timeStyle: 'short' }).formatToParts(AT);
    return parts[parts.findIndex(({ type }) => type === 'hour') - 1].value;
  };
  return {
    numeric: joined('numeric'), short: joined('short'), long: joined('long'), longWeekday: joined('long', { weekday: 'long' }),
    styles: ['full', 'long', 'medium', 'short'].map(styled),
  };
}

function styles(locale) {
  const date = {};
  const details = (parts) => parts.map(({ type, value }) => (type === 'literal' ? value
    : type === 'month' ? (/^\d+$/.test(value) ? (value.length === 2 ? '{month2}' : '{month}') : /^septemb/i.test(value) ? '{monthlong}' : '{monthshort}')
    : type === 'day' ? (value.length === 2 ? '{day2}' : '{day}')
    : type === 'year' ? (value.length === 2 ? '{year2}' : '{year}')
    : type === 'weekday' ? '{weekdaylong}' : `{${type}}`)).join('');
  for (const dateStyle of ['full', 'long', 'medium', 'short']) {
    // September has different short and long names in all of them.
    date[dateStyle] = details(new Intl.DateTimeFormat(locale, { timeZone: 'UTC', dateStyle }).formatToParts(new Date(Date.UTC(2024, 8, 3))));
  }
  return date;
}

function names(locale) {
  const month = (style, more) => Array.from({ length: 12 }, (_, n) => new Intl.DateTimeFormat(locale, { month: style, timeZone: 'UTC', ...more }).formatToParts(new Date(Date.UTC(2024, n, 3))).find(({ type }) => type === 'month').value);
  const day = (style, more) => Array.from({ length: 7 }, (_, n) => new Intl.DateTimeFormat(locale, { weekday: style, timeZone: 'UTC', ...more }).formatToParts(new Date(Date.UTC(2024, 8, 1 + n))).find(({ type }) => type === 'weekday').value);
  return {
    month: { long: month('long', { day: 'numeric' }), short: month('short', { day: 'numeric' }), narrow: month('narrow', {}) },
    monthAlone: { long: month('long', {}), short: month('short', {}), narrow: month('narrow', {}) },
    weekday: { long: day('long', { day: 'numeric', month: 'long' }), short: day('short', { day: 'numeric', month: 'long' }), narrow: day('narrow', {}) },
    weekdayAlone: { long: day('long', {}), short: day('short', {}), narrow: day('narrow', {}) },
    periods: [3, 15].map((h) => new Intl.DateTimeFormat(locale, { hour: 'numeric', hour12: true, timeZone: 'UTC' }).formatToParts(new Date(Date.UTC(2024, 2, 5, h))).find(({ type }) => type === 'dayPeriod').value),
  };
}

const CURRENCIES = 'USD EUR GBP JPY CNY INR KRW CAD AUD NZD MXN BRL CHF SEK NOK DKK PLN CZK HUF RUB TRY ZAR SGD HKD TWD THB ILS AED SAR VND PHP IDR MYR UAH'.split(' ');
function numbers(locale) {
  const parts = (options, value = 12345.6) => new Intl.NumberFormat(locale, options).formatToParts(value);
  const get = (list, type) => list.find((part) => part.type === type)?.value;
  const plain = parts({});
  const currency = {};
  for (const code of CURRENCIES) {
    const symbol = get(parts({ style: 'currency', currency: code }), 'currency');
    const narrow = get(parts({ style: 'currency', currency: code, currencyDisplay: 'narrowSymbol' }), 'currency');
    const name = [1, 2].map((n) => get(parts({ style: 'currency', currency: code, currencyDisplay: 'name' }, n), 'currency'));
    currency[code] = [symbol, narrow, ...name];
  }
  const text = (options, value) => parts(options, value).map(({ type, value }) => (type === 'integer' || type === 'group' || type === 'decimal' || type === 'fraction' ? '#' : type === 'currency' ? '¤' : type === 'percentSign' ? '%' : value)).join('').replace(/#+/g, '#');
  const compact = {};
  for (const display of ['short', 'long']) {
    compact[display] = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].map((power) => [1, 2].map((n) => {
      const list = parts({ notation: 'compact', compactDisplay: display }, n * 10 ** power);
      const digits = get(list, 'integer')?.length ?? 0;
      const word = list.filter(({ type }) => type === 'compact' || type === 'literal').map(({ value }) => value).join('');
      return list.some(({ type }) => type === 'group') || digits > 3 ? null : digits === 0 ? [power, word, true] : [power - digits + 1, word];
    }));
  }
  return {
    group: get(plain, 'group'), decimal: get(plain, 'decimal'),
    percent: text({ style: 'percent' }, 0.5), currencyPattern: text({ style: 'currency', currency: 'EUR' }, 5),
    currencyCode: text({ style: 'currency', currency: 'EUR', currencyDisplay: 'code' }, 5),
    accounting: text({ style: 'currency', currency: 'EUR', currencySign: 'accounting' }, -5),
    exponent: get(parts({ notation: 'scientific' }), 'exponentSeparator'),
    nan: get(parts({}, NaN), 'nan'), currency, compact,
  };
}

const UNITS = ['percent', 'byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte', 'millisecond', 'second', 'minute', 'hour', 'day', 'week', 'month', 'year', 'millimeter', 'centimeter', 'meter', 'kilometer', 'inch', 'foot', 'mile', 'gram', 'kilogram', 'ounce', 'pound', 'liter', 'milliliter', 'celsius', 'fahrenheit', 'degree', 'kilometer-per-hour', 'mile-per-hour', 'meter-per-second'];
function units(locale) {
  const found = {};
  for (const unit of UNITS) {
    found[unit] = ['long', 'short', 'narrow'].map((unitDisplay) => [1, 2].map((n) =>
      new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay }).formatToParts(n).map(({ type, value }) => (type === 'integer' ? '#' : value)).join('')));
  }
  return found;
}

function relative(locale) {
  const found = {};
  for (const style of ['long', 'short', 'narrow']) {
    found[style] = {};
    for (const unit of ['second', 'minute', 'hour', 'day', 'week', 'month', 'quarter', 'year']) {
      const format = new Intl.RelativeTimeFormat(locale, { style });
      const auto = new Intl.RelativeTimeFormat(locale, { style, numeric: 'auto' });
      const text = (n) => format.formatToParts(n, unit).map(({ type, value }) => (type === 'integer' ? '#' : value)).join('');
      const word = (n) => { const list = auto.formatToParts(n, unit); return list.some(({ type }) => type === 'integer') ? null : auto.format(n, unit); };
      found[style][unit] = [[text(1), text(2)], [text(-1), text(-2)], [-2, -1, 0, 1, 2].map(word)];
    }
  }
  return found;
}

function lists(locale) {
  const found = {};
  for (const type of ['conjunction', 'disjunction', 'unit']) {
    found[type] = ['long', 'short', 'narrow'].map((style) => {
      const format = new Intl.ListFormat(locale, { type, style });
      const literals = (items) => format.formatToParts(items).filter(({ type }) => type === 'literal').map(({ value }) => value);
      const many = literals(['a', 'b', 'c', 'd']);
      return [literals(['a', 'b'])[0], many[0], many[2]];
    });
  }
  return found;
}

// The names of time zones: of zones with an abbreviation in the locale, in winter and in summer.
const ZONES = ['UTC', 'America/New_York', 'America/Chicago', 'America/Denver', 'America/Los_Angeles', 'America/Anchorage', 'Pacific/Honolulu', 'Europe/London', 'Europe/Dublin', 'Europe/Paris', 'Europe/Berlin', 'Europe/Madrid', 'Europe/Rome', 'Europe/Vienna', 'Europe/Zurich', 'Europe/Amsterdam', 'Europe/Brussels', 'Europe/Stockholm', 'Europe/Warsaw', 'Europe/Prague', 'Europe/Athens', 'Europe/Helsinki', 'Europe/Moscow', 'Asia/Tokyo', 'Asia/Shanghai', 'Asia/Kolkata', 'Asia/Singapore', 'Asia/Dubai', 'Asia/Seoul', 'Asia/Hong_Kong', 'Australia/Sydney', 'Australia/Melbourne', 'Pacific/Auckland', 'America/Sao_Paulo', 'America/Toronto', 'America/Phoenix'];
function zones(locale) {
  const name = (zone, style, month) => new Intl.DateTimeFormat(locale, { timeZone: zone, timeZoneName: style }).formatToParts(new Date(Date.UTC(2024, month, 15))).find(({ type }) => type === 'timeZoneName').value;
  const found = {};
  for (const zone of ZONES) {
    const both = (style) => [name(zone, style, 0), name(zone, style, 6)];
    const [short, long] = [both('short'), both('long')];
    found[zone] = [/^(GMT|UTC)[+−-]/.test(short[0]) ? null : short, long];
  }
  return found;
}

const plain = JSON.stringify;
const data = {};
for (const locale of LOCALES) {
  data[locale] = {
    dates: dates(locale), times: times(locale), glue: glue(locale), styles: styles(locale), names: names(locale),
    numbers: numbers(locale), units: units(locale), relative: relative(locale), lists: lists(locale), zones: zones(locale),
  };
}
console.log(plain(data));
