// Defines `Intl` for four locales, as Node formats in them; other locales use ISO 8601 dates and English numbers, and say so.
// Loaded when a script first uses `Intl` or a `toLocale…` function.
function (native, own) {
  'use strict';
  const KNOWN = ['en-US', 'en-GB', 'de-DE', 'fr-FR'];
  const data = own.create(null);
  const warned = own.create(null);
  const tables = (locale) => (data[locale] ??= own.parse(native.intlData(locale)));
  const fail = (message) => { throw new own.RangeError(message); };
  const optionsOf = (options) => (options === undefined ? own.create(null) : options);

  // ---- locales ---------------------------------------------------------------------------------------------------
  // Returns the locale to format in, and the tag that the script asked for.
  function resolveLocale(locales) {
    const asked = own.isArray(locales) ? locales[0] : locales;
    if (asked === undefined) return { __proto__: null, locale: 'en-US', tag: 'en-US', isIso: false };
    if (typeof asked !== 'string' || !own.test(/^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$/, asked)) fail('Incorrect locale information provided: ' + asked);
    const tag = own.replaceAll(asked, '_', '-');
    const language = own.toLowerCase(own.split(tag, '-')[0]);
    for (let n = 0; n < KNOWN.length; n++) if (own.toLowerCase(KNOWN[n]) === own.toLowerCase(tag)) return { __proto__: null, locale: KNOWN[n], tag: KNOWN[n], isIso: false };
    if (tag === language && (language === 'en' || language === 'de' || language === 'fr')) {
      return { __proto__: null, locale: language === 'en' ? 'en-US' : language === 'de' ? 'de-DE' : 'fr-FR', tag, isIso: false };
    }
    if (warned[tag] !== true) {
      warned[tag] = true;
      native.log('warn', 'the locale `' + tag + '` is not available: dates are formatted as ISO 8601, numbers as in English; available are en-US, en-GB, de-DE and fr-FR');
    }
    return { __proto__: null, locale: 'en-US', tag, isIso: true };
  }

  const pick = (options, name, allowed, fallback) => {
    const value = options[name];
    if (value === undefined) return fallback;
    const text = own.String(value);
    for (let n = 0; n < allowed.length; n++) if (allowed[n] === text) return text;
    return fail('Value ' + text + ' out of range for Intl options property ' + name);
  };
  const digitOption = (options, name, min, max, fallback) => {
    const value = options[name];
    if (value === undefined) return fallback;
    const number = own.Number(value);
    if (!(number >= min && number <= max)) fail(name + ' value is out of range.');
    return own.floor(number);
  };

  // ---- numbers ---------------------------------------------------------------------------------------------------
  // The digits of a number and the place of its point: 12.5 is ['125', 2].
  function decimalOf(value) {
    const text = own.String(value);
    const at = own.indexOf(text, 'e');
    const mantissa = at < 0 ? text : own.substring(text, 0, at);
    const exponent = at < 0 ? 0 : +own.substring(text, at + 1, text.length);
    const dot = own.indexOf(mantissa, '.');
    let digits = dot < 0 ? mantissa : own.substring(mantissa, 0, dot) + own.substring(mantissa, dot + 1, mantissa.length);
    let point = (dot < 0 ? mantissa.length : dot) + exponent;
    let zeros = 0;
    while (zeros < digits.length - 1 && digits[zeros] === '0') zeros++;
    digits = own.substring(digits, zeros, digits.length);
    point -= zeros;
    return digits === '0' ? ['', 0] : [digits, point];
  }

  // Rounds to `count` digits, half away from zero.
  function roundDigits(digits, point, count) {
    if (count >= digits.length) return [digits, point];
    if (count < 0) return ['', 0];
    const isUp = own.charCodeAt(digits, count) >= 53;
    let kept = own.substring(digits, 0, count);
    if (!isUp) return [kept, point];
    let at = count - 1;
    while (at >= 0 && kept[at] === '9') at--;
    if (at < 0) return ['1', point + 1];
    return [own.substring(kept, 0, at) + own.fromCharCode(own.charCodeAt(kept, at) + 1), point];
  }

  const zeros = (count) => { let text = ''; for (let n = 0; n < count; n++) text += '0'; return text; };

  // Returns the integer and fraction digits, rounded as the format says.
  function fixed(digits, point, rule) {
    if (rule.maxSignificant !== undefined) [digits, point] = roundDigits(digits, point, rule.maxSignificant);
    else [digits, point] = roundDigits(digits, point, point + rule.maxFraction);
    if (digits === '') point = 0;
    let integer = point > 0 ? own.substring(digits, 0, point) + zeros(point - digits.length) : '0';
    let fraction = point >= digits.length ? '' : zeros(-point) + own.substring(digits, own.max(point, 0), digits.length);
    let end = fraction.length;
    while (end > 0 && fraction[end - 1] === '0') end--;
    fraction = own.substring(fraction, 0, end);
    let least = rule.minFraction ?? 0;
    if (rule.minSignificant !== undefined) least = own.max(0, rule.minSignificant - (digits === '' ? 1 : own.max(point, point > 0 ? 0 : point)));
    if (fraction.length < least) fraction += zeros(least - fraction.length);
    if (integer.length < rule.minInteger) integer = zeros(rule.minInteger - integer.length) + integer;
    return [integer, fraction];
  }

  const ZERO_DIGITS = 'JPY KRW VND CLP ISK PYG UGX XAF XOF XPF RWF GNF KMF DJF BIF VUV';
  const currencyDigits = (code) => (own.indexOf(ZERO_DIGITS, code) >= 0 ? 0 : own.indexOf('KWD BHD OMR TND JOD IQD LYD', code) >= 0 ? 3 : 2);

  // In the four locales `always` and `auto` are the same; `min2` groups from five digits.
  const groupingOf = (options, fallback) => {
    const value = options.useGrouping;
    if (value === true) return 'always';
    if (value !== undefined && !value) return false;
    const grouping = pick(options, 'useGrouping', ['min2', 'auto', 'always', 'true', 'false'], fallback);
    return grouping === 'true' || grouping === 'false' ? fallback : grouping;
  };

  class NumberFormat {
    #r;
    #bound;
    constructor(locales, options) {
      const o = optionsOf(options);
      const where = resolveLocale(locales);
      const style = pick(o, 'style', ['decimal', 'percent', 'currency', 'unit'], 'decimal');
      const notation = pick(o, 'notation', ['standard', 'scientific', 'engineering', 'compact'], 'standard');
      const r = { __proto__: null, ...where, style, notation };
      if (style === 'currency' && o.currency === undefined) throw new own.TypeError('Currency code is required with currency style.');
      if (style === 'unit' && o.unit === undefined) throw new own.TypeError('Unit is required with unit style.');
      if (o.currency !== undefined && !own.test(/^[A-Za-z]{3}$/, o.currency)) fail('Invalid currency code : ' + o.currency);
      r.currency = o.currency === undefined ? undefined : own.toUpperCase(own.String(o.currency));
      r.currencyDisplay = pick(o, 'currencyDisplay', ['symbol', 'narrowSymbol', 'code', 'name'], 'symbol');
      r.currencySign = pick(o, 'currencySign', ['standard', 'accounting'], 'standard');
      r.unit = o.unit;
      r.unitDisplay = pick(o, 'unitDisplay', ['long', 'short', 'narrow'], 'short');
      if (r.unit !== undefined && tables(r.locale).units[r.unit] === undefined) fail('the unit `' + r.unit + '` is not available: write it after the number');
      r.compactDisplay = pick(o, 'compactDisplay', ['short', 'long'], 'short');
      r.signDisplay = pick(o, 'signDisplay', ['auto', 'never', 'always', 'exceptZero', 'negative'], 'auto');
      r.useGrouping = groupingOf(o, notation === 'compact' ? 'min2' : 'auto');
      r.trailingZeroDisplay = pick(o, 'trailingZeroDisplay', ['auto', 'stripIfInteger'], 'auto');
      const priority = pick(o, 'roundingPriority', ['auto', 'morePrecision', 'lessPrecision'], 'auto');
      if (priority !== 'auto') fail('the rounding priority `' + priority + '` is not available: round the number before you format it');
      if (o.roundingMode !== undefined && o.roundingMode !== 'halfExpand') fail('the rounding mode `' + o.roundingMode + '` is not available: round the number before you format it');
      if (o.roundingIncrement !== undefined && o.roundingIncrement !== 1) fail('roundingIncrement is not available: round the number before you format it');
      const natural = style === 'currency' ? currencyDigits(r.currency) : 0;
      const isCompact = notation === 'compact';
      r.minInteger = digitOption(o, 'minimumIntegerDigits', 1, 21, 1);
      const least = digitOption(o, 'minimumFractionDigits', 0, 100, undefined);
      const most = digitOption(o, 'maximumFractionDigits', 0, 100, undefined);
      const usual = isCompact ? 0 : style === 'currency' ? natural : style === 'percent' ? 0 : 3;
      r.minFraction = least ?? own.min(isCompact ? 0 : natural, most ?? 100);
      r.maxFraction = most ?? own.max(usual, r.minFraction);
      if (r.maxFraction < r.minFraction) fail('maximumFractionDigits value is out of range.');
      r.minSignificant = digitOption(o, 'minimumSignificantDigits', 1, 21, undefined);
      r.maxSignificant = digitOption(o, 'maximumSignificantDigits', r.minSignificant ?? 1, 21, r.minSignificant === undefined ? undefined : 21);
      if (r.maxSignificant !== undefined) r.minSignificant ??= 1;
      r.isRoundedAsCompact = isCompact && least === undefined && most === undefined && r.maxSignificant === undefined;
      this.#r = r;
    }
    get format() { return (this.#bound ??= (value) => joined(numberParts(this.#r, value))); }
    formatToParts(value) { return numberParts(this.#r, value); }
    formatRange(from, to) { return noRange('NumberFormat', from, to); }
    resolvedOptions() {
      const { tag, style, notation, signDisplay, currency, unit, minInteger, minFraction, maxFraction } = this.#r;
      return { locale: tag, numberingSystem: 'latn', style, ...(currency === undefined ? {} : { currency }), ...(unit === undefined ? {} : { unit }), minimumIntegerDigits: minInteger, minimumFractionDigits: minFraction, maximumFractionDigits: maxFraction, notation, signDisplay };
    }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.NumberFormat'; }
  }

  const noRange = (name) => { throw new own.TypeError('Intl.' + name + '.formatRange is not available: format both ends and join them'); };
  const joined = (parts) => { let text = ''; for (let n = 0; n < parts.length; n++) text += parts[n].value; return text; };
  const part = (parts, type, value) => { if (value !== '') own.push(parts, { type, value }); };

  function numberParts(r, input) {
    const value = typeof input === 'bigint' ? input : typeof input === 'string' && own.test(/^\s*-?\d+\s*$/, input) ? own.BigInt(input) : own.Number(input);
    const isNegative = typeof value === 'bigint' ? value < 0n : value < 0 || own.is(value, -0);
    const t = tables(r.locale).numbers;
    const inner = [];
    let isZero = false;
    let plural = 1;
    if (typeof value === 'number' && !own.isFinite(value)) {
      if (value !== value) part(inner, 'nan', t.nan); else part(inner, 'infinity', '∞');
    } else {
      const magnitude = typeof value === 'bigint' ? (isNegative ? -value : value) : value < 0 ? -value : value === 0 ? 0 : value;
      let [digits, point] = decimalOf(magnitude);
      if (r.style === 'percent' && digits !== '') point += 2;
      const result = digitParts(r, t, digits, point, inner);
      isZero = result.isZero;
      plural = result.plural;
    }
    const sign = signOf(r, isNegative && value === value, isZero, value !== value);
    return surround(r, t, inner, sign, plural);
  }

  // Appends the digits. Returns whether they are all zero, and the plural form of the number: 0 for one.
  function digitParts(r, t, digits, point, parts) {
    let power = 0;
    let word;
    if (r.notation === 'compact') {
      [power, word] = compactOf(r, t, digits, point);
    } else if (r.notation !== 'standard' && digits !== '') {
      power = r.notation === 'engineering' ? own.floor((point - 1) / 3) * 3 : point - 1;
      const rounded = fixed(digits, point - power, r);
      if (r.notation === 'scientific' && rounded[0].length > 1) power++;
    }
    const rule = r.isRoundedAsCompact ? (point - power >= 2 ? { __proto__: null, minInteger: r.minInteger, maxFraction: 0 } : { __proto__: null, minInteger: r.minInteger, maxSignificant: 2 }) : r;
    let [integer, fraction] = fixed(digits, point - power, rule);
    if (r.trailingZeroDisplay === 'stripIfInteger' && own.test(/^0*$/, fraction)) fraction = '';
    if (word?.[2] === true) part(parts, 'compact', word[1]);
    else {
      const least = r.useGrouping === 'min2' ? 5 : 4;
      if (r.useGrouping !== false && integer.length >= least) {
        const head = integer.length % 3 || 3;
        part(parts, 'integer', own.substring(integer, 0, head));
        for (let n = head; n < integer.length; n += 3) { part(parts, 'group', t.group); part(parts, 'integer', own.substring(integer, n, n + 3)); }
      } else part(parts, 'integer', integer);
      if (fraction !== '') { part(parts, 'decimal', t.decimal); part(parts, 'fraction', fraction); }
      if (word !== undefined) {
        const text = own.test(/^[ \u00a0\u202f]/, word[1]) ? 1 : 0;
        part(parts, 'literal', own.substring(word[1], 0, text));
        part(parts, 'compact', own.substring(word[1], text, word[1].length));
      }
    }
    if (r.notation === 'scientific' || r.notation === 'engineering') {
      part(parts, 'exponentSeparator', t.exponent);
      if (power < 0) part(parts, 'exponentMinusSign', '-');
      part(parts, 'exponentInteger', own.String(power < 0 ? -power : power));
    }
    const isFrench = r.locale === 'fr-FR';
    const isOne = isFrench ? integer === '1' || integer === '0' : integer === '1' && fraction === '';
    return { __proto__: null, isZero: own.test(/^0*$/, integer + fraction), plural: isOne ? 0 : 1 };
  }

  function compactOf(r, t, digits, point) {
    if (digits === '' || point <= 3) {
      // 999.9 thousand may be rounded up to the next word.
      if (digits === '' || point < 3) return [0, undefined];
      const up = r.isRoundedAsCompact ? roundDigits(digits, point, point) : [digits, point];
      if (up[1] <= 3) return [0, undefined];
    }
    const entries = t.compact[r.compactDisplay];
    let entry = own.min(own.max(point, 4) - 4, entries.length - 1);
    if (entries[entry][1] === null) return [0, undefined];
    const shown = fixed(digits, point - entries[entry][1][0], point - entries[entry][1][0] >= 2 ? { __proto__: null, minInteger: 1, maxFraction: r.isRoundedAsCompact ? 0 : r.maxFraction } : { __proto__: null, minInteger: 1, maxSignificant: 2 });
    if (shown[0].length > 3 && entry + 1 < entries.length && entries[entry + 1][1] !== null && entries[entry + 1][1][0] !== entries[entry][1][0]) entry++;
    const one = r.locale === 'fr-FR' ? shown[0] === '1' && r.compactDisplay === 'long' : shown[0] === '1' && shown[1] === '';
    const exact = shown[0] === '1' && shown[1] === '';
    let chosen = entries[entry][one ? 0 : 1] ?? entries[entry][1];
    if (chosen[2] === true && !exact) chosen = [chosen[0], ' millier'];
    return [chosen[0], chosen];
  }

  function signOf(r, isNegative, isZero, isNan) {
    switch (r.signDisplay) {
      case 'never': return '';
      case 'always': return isNegative ? '-' : '+';
      case 'exceptZero': return isZero || isNan ? '' : isNegative ? '-' : '+';
      case 'negative': return isNegative && !isZero ? '-' : '';
      default: return isNegative ? '-' : '';
    }
  }

  // Puts sign, currency, unit or percent sign around the digits.
  function surround(r, t, inner, sign, plural) {
    const parts = [];
    const signPart = () => { if (sign !== '') part(parts, sign === '-' ? 'minusSign' : 'plusSign', sign); };
    const digits = () => { for (let n = 0; n < inner.length; n++) own.push(parts, inner[n]); };
    if (r.style === 'decimal') { signPart(); digits(); return parts; }
    let pattern;
    let symbol = '';
    if (r.style === 'percent') pattern = t.percent;
    else if (r.style === 'unit') {
      const at = r.unitDisplay === 'long' ? 0 : r.unitDisplay === 'short' ? 1 : 2;
      pattern = tables(r.locale).units[r.unit][at][plural];
    } else {
      const names = t.currency[r.currency];
      symbol = r.currencyDisplay === 'code' || names === undefined ? r.currency : names[r.currencyDisplay === 'symbol' ? 0 : r.currencyDisplay === 'narrowSymbol' ? 1 : 2 + plural];
      pattern = r.currencyDisplay === 'name' ? '# ¤' : t.currencyPattern;
      // A symbol that ends in a letter is set apart.
      if (pattern === '¤#' && own.test(/[A-Za-z]$/, symbol) && inner[0].type === 'integer') pattern = t.currencyCode;
      if (r.currencySign === 'accounting' && sign === '-' && t.accounting[0] === '(') { pattern = '(' + pattern + ')'; sign = ''; }
    }
    if (pattern[0] !== '(') signPart();
    let literal = '';
    const flush = () => { part(parts, r.style === 'unit' && own.test(/\S/, literal) ? 'unit' : 'literal', literal); literal = ''; };
    for (let n = 0; n < pattern.length; n++) {
      const c = pattern[n];
      if (c === '#') { flush(); digits(); }
      else if (c === '¤') { flush(); part(parts, 'currency', symbol); }
      else if (c === '%' && r.style === 'percent') { flush(); part(parts, 'percentSign', '%'); }
      else literal += c;
    }
    flush();
    return parts;
  }

  // ---- dates -----------------------------------------------------------------------------------------------------
  const FIELDS = ['weekday', 'year', 'month', 'day', 'hour', 'minute', 'second', 'fractionalSecondDigits', 'timeZoneName', 'dayPeriod', 'era'];
  const has = (r, names) => { for (let n = 0; n < names.length; n++) if (r[names[n]] !== undefined) return true; return false; };

  function dateOptions(locales, options, needed, defaults) {
    const o = optionsOf(options);
    const r = { __proto__: null, ...resolveLocale(locales) };
    if (o.calendar !== undefined && o.calendar !== 'gregory' && o.calendar !== 'iso8601') fail('the calendar `' + o.calendar + '` is not available: only gregory is');
    for (const name of ['weekday', 'era']) r[name] = pick(o, name, ['narrow', 'short', 'long'], undefined);
    for (const name of ['year', 'day', 'hour', 'minute', 'second']) r[name] = pick(o, name, ['2-digit', 'numeric'], undefined);
    r.month = pick(o, 'month', ['2-digit', 'numeric', 'narrow', 'short', 'long'], undefined);
    r.fractionalSecondDigits = digitOption(o, 'fractionalSecondDigits', 1, 3, undefined);
    r.timeZoneName = pick(o, 'timeZoneName', ['short', 'long', 'shortOffset', 'longOffset', 'shortGeneric', 'longGeneric'], undefined);
    r.dateStyle = pick(o, 'dateStyle', ['full', 'long', 'medium', 'short'], undefined);
    r.timeStyle = pick(o, 'timeStyle', ['full', 'long', 'medium', 'short'], undefined);
    if (o.dayPeriod !== undefined) fail('the option dayPeriod is not available: use hour12');
    if (r.era !== undefined) fail('the option era is not available: add it to the text');
    if (r.timeZoneName === 'shortGeneric' || r.timeZoneName === 'longGeneric') fail('the time zone name `' + r.timeZoneName + '` is not available: use short or long');
    const isStyled = r.dateStyle !== undefined || r.timeStyle !== undefined;
    if (isStyled && has(r, FIELDS)) throw new own.TypeError("Can't set option " + FIELDS[0] + ' when dateStyle is used');
    if (needed === 'date' && r.timeStyle !== undefined) throw new own.TypeError('Invalid option : timeStyle');
    if (needed === 'time' && r.dateStyle !== undefined) throw new own.TypeError('Invalid option : dateStyle');
    const isGiven = isStyled || (needed !== 'time' && has(r, ['weekday', 'year', 'month', 'day'])) || (needed !== 'date' && has(r, ['hour', 'minute', 'second', 'fractionalSecondDigits']));
    if (!isGiven && defaults !== 'time') r.year = r.month = r.day = 'numeric';
    if (!isGiven && defaults !== 'date') r.hour = r.minute = r.second = 'numeric';
    r.timeZone = zoneName(o.timeZone);
    const hour12 = o.hour12;
    const cycle = pick(o, 'hourCycle', ['h11', 'h12', 'h23', 'h24'], undefined);
    const isEnglishUs = r.locale === 'en-US' && !r.isIso;
    r.hourCycle = hour12 !== undefined ? (hour12 ? (isEnglishUs ? 'h12' : 'h11') : isEnglishUs ? 'h24' : 'h23') : cycle ?? (isEnglishUs ? 'h12' : 'h23');
    if (hour12 === false && isEnglishUs && isStyled) r.hourCycle = 'h23';
    return r;
  }

  function zoneName(zone) {
    if (zone === undefined) return native.defaultZone();
    const text = own.String(zone);
    const found = native.findZone(text);
    if (found === undefined) fail('Invalid time zone specified: ' + text);
    return found;
  }

  // The fields of a moment in a zone.
  function fieldsOf(zone, time) {
    const offset = native.zoneOffset(zone, time);
    const local = new own.Date(time + offset * 1000);
    return {
      __proto__: null, time, offset, year: own.utcYear(local), month: own.utcMonth(local), day: own.utcDay(local), weekday: own.utcWeekday(local),
      hour: own.utcHours(local), minute: own.utcMinutes(local), second: own.utcSeconds(local), millisecond: own.utcMilliseconds(local),
    };
  }

  const two = (number) => (number < 10 ? '0' + number : '' + number);

  class DateTimeFormat {
    #r;
    #bound;
    constructor(locales, options) { this.#r = dateOptions(locales, options, 'any', 'date'); }
    get format() { return (this.#bound ??= (date) => dateText(this.#r, timeOf(date))); }
    formatToParts(date) { return dateParts(this.#r, timeOf(date)); }
    formatRange(from, to) { return noRange('DateTimeFormat', from, to); }
    formatRangeToParts(from, to) { return noRange('DateTimeFormat', from, to); }
    resolvedOptions() {
      const r = this.#r;
      const options = { locale: r.tag, calendar: 'gregory', numberingSystem: 'latn', timeZone: r.timeZone };
      if (r.hour !== undefined || r.timeStyle !== undefined) { options.hourCycle = r.hourCycle; options.hour12 = r.hourCycle === 'h12' || r.hourCycle === 'h11'; }
      for (const name of ['weekday', 'year', 'month', 'day', 'hour', 'minute', 'second', 'fractionalSecondDigits', 'timeZoneName', 'dateStyle', 'timeStyle']) {
        if (r[name] !== undefined) options[name] = r[name];
      }
      return options;
    }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.DateTimeFormat'; }
  }

  function timeOf(date) {
    const time = date === undefined ? own.dateNow() : own.Number(date);
    if (!own.isFinite(time)) throw new own.RangeError('Invalid time value');
    return time;
  }

  // As in V8, the text has a plain space where the parts have a narrow one.
  const dateText = (r, time) => own.replaceAll(joined(dateParts(r, time)), '\u202f', ' ');

  function dateParts(r, time) {
    const f = fieldsOf(r.timeZone, time);
    const t = tables(r.locale);
    const parts = [];
    const isDated = r.dateStyle !== undefined || has(r, ['weekday', 'year', 'month', 'day']);
    const isTimed = r.timeStyle !== undefined || has(r, ['hour', 'minute', 'second', 'fractionalSecondDigits']);
    if (isDated) fill(parts, datePattern(r, t), r, f, t);
    if (isDated && isTimed) part(parts, 'literal', glueOf(r, t));
    if (isTimed) fill(parts, timePattern(r, t), r, f, t);
    const zoneStyle = r.timeZoneName ?? (r.timeStyle === 'full' ? 'long' : r.timeStyle === 'long' ? 'short' : undefined);
    if (zoneStyle !== undefined) {
      if (parts.length > 0) part(parts, 'literal', isTimed ? ' ' : ', ');
      part(parts, 'timeZoneName', zoneText(r, t, f, zoneStyle));
    }
    return parts;
  }

  const isText = (month) => month === 'short' || month === 'long' || month === 'narrow';

  function datePattern(r, t) {
    if (r.isIso && !isText(r.month) && r.dateStyle === undefined) {
      let text = '';
      for (const name of ['year', 'month', 'day']) if (r[name] !== undefined) text += (text === '' ? '' : '-') + '{' + name + (name === 'year' ? '' : '+') + '}';
      return r.weekday === undefined ? text : '{weekday}' + (text === '' ? '' : ', ') + text;
    }
    if (r.dateStyle !== undefined) return r.isIso && r.dateStyle !== 'full' && r.dateStyle !== 'long' ? '{year}-{month2}-{day2}' : t.styles[r.dateStyle];
    const month = { __proto__: null, numeric: 'n', '2-digit': '2', short: 's', narrow: 's', long: 'l' }[r.month] ?? '';
    const weekday = r.weekday === undefined ? '' : r.weekday === 'long' ? 'l' : 's';
    return t.dates[weekday + '.' + (r.year === undefined ? '' : 'y') + '.' + month + '.' + (r.day === undefined ? '' : r.day === 'numeric' ? 'd' : 'D')];
  }

  function timePattern(r, t) {
    const style = r.timeStyle;
    const is12 = r.hourCycle === 'h12' || r.hourCycle === 'h11';
    const fields = style !== undefined ? (style === 'short' ? 'hm' : 'hms') : (r.hour === undefined ? '' : 'h') + (r.minute === undefined ? '' : 'm') + (r.second === undefined ? '' : 's');
    let pattern = t.times[(is12 ? '12' : '24') + fields + (r.hour === '2-digit' ? '2' : '')] ?? (fields === '' ? '{fractionalSecond}' : undefined);
    if (pattern === undefined) fail('this combination of time fields is not available: use hour, minute and second together');
    if (r.fractionalSecondDigits !== undefined && r.second !== undefined) pattern = own.replaceAll(pattern, '{second}', '{second}' + t.numbers.decimal + '{fractionalSecond}');
    return pattern;
  }

  function glueOf(r, t) {
    if (r.isIso) return isText(r.month) ? ', ' : ' ';
    if (r.dateStyle !== undefined) return t.glue.styles[r.dateStyle === 'full' ? 0 : r.dateStyle === 'long' ? 1 : r.dateStyle === 'medium' ? 2 : 3];
    if (r.month === 'long') return r.weekday === undefined ? t.glue.long : t.glue.longWeekday;
    return isText(r.month) ? t.glue.short : r.month === undefined && r.weekday !== undefined ? ' ' : t.glue.numeric;
  }

  function fill(parts, pattern, r, f, t) {
    let rest = pattern;
    while (rest !== '') {
      const open = own.indexOf(rest, '{');
      if (open !== 0) {
        const end = open < 0 ? rest.length : open;
        part(parts, 'literal', own.substring(rest, 0, end));
        rest = own.substring(rest, end, rest.length);
        continue;
      }
      const close = own.indexOf(rest, '}');
      const field = own.substring(rest, 1, close);
      rest = own.substring(rest, close + 1, rest.length);
      const name = own.test(/^(month|weekday)(long|short)$/, field) ? (own.startsWith(field, 'month') ? 'month' : 'weekday') : own.replaceAll(own.replaceAll(own.replaceAll(field, '+', ''), '-', ''), '2', '');
      part(parts, name, fieldText(name, field, r, f, t));
    }
  }

  function fieldText(name, field, r, f, t) {
    const isTwo = own.indexOf(field, '+') > 0 || own.indexOf(field, '2') > 0;
    switch (name) {
      case 'year': return isTwo || r.year === '2-digit' || own.indexOf(field, '-') > 0 ? two(f.year % 100) : own.String(f.year);
      case 'month': {
        const style = own.startsWith(field, 'monthl') ? 'long' : own.startsWith(field, 'months') ? 'short' : isText(r.month) ? r.month : undefined;
        if (style === undefined) return isTwo || r.month === '2-digit' ? two(f.month + 1) : own.String(f.month + 1);
        const isAlone = r.dateStyle === undefined && r.day === undefined;
        return (isAlone ? t.names.monthAlone : t.names.month)[style][f.month];
      }
      case 'day': return isTwo || r.day === '2-digit' ? two(f.day) : own.String(f.day);
      case 'weekday': {
        const isAlone = r.dateStyle === undefined && r.day === undefined;
        return (isAlone ? t.names.weekdayAlone : t.names.weekday)[own.startsWith(field, 'weekdayl') ? 'long' : r.weekday][f.weekday];
      }
      case 'hour': return hourText(isTwo, r, f);
      case 'minute': return r.timeStyle === undefined && r.hour === undefined && r.second === undefined && r.minute !== undefined ? own.String(f.minute) : two(f.minute);
      case 'second': return r.timeStyle === undefined && r.hour === undefined && r.minute === undefined ? own.String(f.second) : two(f.second);
      case 'fractionalSecond': return own.substring(own.String(1000 + f.millisecond), 1, 1 + r.fractionalSecondDigits);
      case 'dayPeriod': return t.names.periods[f.hour < 12 ? 0 : 1];
      default: return '';
    }
  }

  function hourText(isTwo, r, f) {
    const hour = r.hourCycle === 'h12' ? f.hour % 12 || 12 : r.hourCycle === 'h11' ? f.hour % 12 : r.hourCycle === 'h24' ? f.hour || 24 : f.hour;
    // Outside of en-US an hour has two digits by default, but not beside minutes that are asked to have two.
    const isShort = r.minute === '2-digit' && r.hour === 'numeric' && r.hourCycle === 'h23' && r.locale !== 'en-US' && r.timeZoneName === undefined;
    return (isTwo && !isShort) || r.hour === '2-digit' || (r.isIso && r.hourCycle === 'h23') ? two(hour) : own.String(hour);
  }

  function zoneText(r, t, f, style) {
    const isShort = style === 'short' || style === 'shortOffset';
    const names = style === 'short' || style === 'long' ? t.zones[r.timeZone] : undefined;
    const known = names?.[style === 'short' ? 0 : 1];
    if (known !== undefined && known !== null) {
      // The names are those of January and July; the one with the offset of this moment is meant.
      const january = native.zoneOffset(r.timeZone, Date_UTC_2024_01);
      return known[f.offset === january ? 0 : 1];
    }
    const prefix = r.locale === 'fr-FR' ? 'UTC' : 'GMT';
    const offset = own.floor(own.abs(f.offset) / 60);
    if (offset === 0) return prefix;
    const sign = f.offset < 0 ? (r.locale === 'fr-FR' ? '−' : '-') : '+';
    const [hours, minutes] = [own.floor(offset / 60), offset % 60];
    return prefix + sign + (isShort ? hours + (minutes === 0 ? '' : ':' + two(minutes)) : two(hours) + ':' + two(minutes));
  }
  const Date_UTC_2024_01 = 1705276800000;

  // ---- plurals, relative times, lists ----------------------------------------------------------------------------
  class PluralRules {
    #r;
    constructor(locales, options) {
      const o = optionsOf(options);
      this.#r = { __proto__: null, ...resolveLocale(locales), type: pick(o, 'type', ['cardinal', 'ordinal'], 'cardinal') };
    }
    select(number) {
      const n = own.abs(own.Number(number));
      const { locale, type } = this.#r;
      if (type === 'ordinal') {
        if (locale === 'de-DE') return 'other';
        if (locale === 'fr-FR') return n === 1 ? 'one' : 'other';
        const [ten, hundred] = [n % 10, n % 100];
        return ten === 1 && hundred !== 11 ? 'one' : ten === 2 && hundred !== 12 ? 'two' : ten === 3 && hundred !== 13 ? 'few' : 'other';
      }
      if (locale === 'fr-FR') return n < 2 ? 'one' : n !== 0 && n % 1_000_000 === 0 ? 'many' : 'other';
      return n === 1 ? 'one' : 'other';
    }
    resolvedOptions() { return { locale: this.#r.tag, type: this.#r.type }; }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.PluralRules'; }
  }

  class RelativeTimeFormat {
    #r;
    constructor(locales, options) {
      const o = optionsOf(options);
      this.#r = { __proto__: null, ...resolveLocale(locales), style: pick(o, 'style', ['long', 'short', 'narrow'], 'long'), numeric: pick(o, 'numeric', ['always', 'auto'], 'always') };
    }
    format(value, unit) {
      const { locale, style, numeric, tag } = this.#r;
      const number = own.Number(value);
      if (!own.isFinite(number)) fail('Invalid number value');
      const name = own.test(/s$/, unit) ? own.substring(unit, 0, unit.length - 1) : own.String(unit);
      const entry = tables(locale).relative[style][name];
      if (entry === undefined) fail('Invalid unit argument for format() ' + "'" + unit + "'");
      const word = numeric === 'auto' && number >= -2 && number <= 2 && number === own.floor(number) ? entry[2][number + 2] : null;
      if (word !== null) return word;
      const isPast = number < 0 || own.is(number, -0);
      const text = joined(numberParts(plainNumber(tag === locale ? locale : tag, locale), own.abs(number)));
      const isOne = locale === 'fr-FR' ? own.abs(number) < 2 : own.abs(number) === 1;
      return own.replaceAll(entry[isPast ? 1 : 0][isOne ? 0 : 1], '#', text);
    }
    formatToParts(value, unit) { return [{ type: 'literal', value: this.format(value, unit) }]; }
    resolvedOptions() { return { locale: this.#r.tag, style: this.#r.style, numeric: this.#r.numeric, numberingSystem: 'latn' }; }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.RelativeTimeFormat'; }
  }
  const plainNumber = (tag, locale) => ({ __proto__: null, tag, locale, style: 'decimal', notation: 'standard', signDisplay: 'auto', useGrouping: 'auto', trailingZeroDisplay: 'auto', minInteger: 1, minFraction: 0, maxFraction: 3 });

  class ListFormat {
    #r;
    constructor(locales, options) {
      const o = optionsOf(options);
      this.#r = { __proto__: null, ...resolveLocale(locales), type: pick(o, 'type', ['conjunction', 'disjunction', 'unit'], 'conjunction'), style: pick(o, 'style', ['long', 'short', 'narrow'], 'long') };
    }
    formatToParts(list) {
      const items = [];
      for (const item of list) {
        if (typeof item !== 'string') throw new own.TypeError('Iterable yielded ' + own.String(item) + ' which is not a string');
        own.push(items, item);
      }
      const { locale, type, style } = this.#r;
      const [two, middle, last] = tables(locale).lists[type][style === 'long' ? 0 : style === 'short' ? 1 : 2];
      const parts = [];
      for (let n = 0; n < items.length; n++) {
        if (n > 0) part(parts, 'literal', items.length === 2 ? two : n === items.length - 1 ? last : middle);
        own.push(parts, { type: 'element', value: items[n] });
      }
      return parts;
    }
    format(list) { return joined(this.formatToParts(list)); }
    resolvedOptions() { return { locale: this.#r.tag, type: this.#r.type, style: this.#r.style }; }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.ListFormat'; }
  }

  // ---- comparison ------------------------------------------------------------------------------------------------
  const NOT_ASCII = 2;
  const decomposed = (text) => own.normalize(text, 'NFD');
  function compareTexts(flags, a, b) {
    const x = own.toWellFormed(own.String(a));
    const y = own.toWellFormed(own.String(b));
    const order = native.collateAscii(x, y, flags);
    return order === NOT_ASCII ? native.collate(decomposed(x), decomposed(y), flags) : order;
  }
  // The differences that count, as the native functions take them.
  const flagsOf = ({ sensitivity, numeric, caseFirst, ignorePunctuation }) =>
    (sensitivity === 'accent' || sensitivity === 'variant' ? 1 : 0) | (sensitivity === 'case' || sensitivity === 'variant' ? 2 : 0) |
    (numeric ? 4 : 0) | (caseFirst === 'upper' ? 8 : 0) | (ignorePunctuation ? 16 : 0);

  class Collator {
    #r;
    #bound;
    constructor(locales, options) {
      const o = optionsOf(options);
      this.#r = {
        __proto__: null, ...resolveLocale(locales), sensitivity: pick(o, 'sensitivity', ['base', 'accent', 'case', 'variant'], 'variant'),
        numeric: o.numeric === true, caseFirst: pick(o, 'caseFirst', ['upper', 'lower', 'false'], 'false'), ignorePunctuation: o.ignorePunctuation === true,
      };
    }
    get compare() {
      if (this.#bound === undefined) {
        const flags = flagsOf(this.#r);
        this.#bound = (a, b) => compareTexts(flags, a, b);
      }
      return this.#bound;
    }
    resolvedOptions() { const { tag, sensitivity, numeric, caseFirst, ignorePunctuation } = this.#r; return { locale: tag, usage: 'sort', sensitivity, ignorePunctuation, collation: 'default', numeric, caseFirst }; }
    static supportedLocalesOf(locales) { return supported(locales); }
    get [Symbol.toStringTag]() { return 'Intl.Collator'; }
  }

  // ---- Intl ------------------------------------------------------------------------------------------------------
  function supported(locales) {
    const asked = locales === undefined ? [] : own.isArray(locales) ? locales : [locales];
    const found = [];
    for (let n = 0; n < asked.length; n++) {
      for (let k = 0; k < KNOWN.length; k++) if (KNOWN[k] === asked[n] || own.startsWith(KNOWN[k], asked[n] + '-')) { own.push(found, asked[n]); break; }
    }
    return found;
  }

  const Intl = {};
  const define = (object, name, value) => own.defineProperty(object, name, { __proto__: null, value, writable: true, configurable: true });
  // The formats of the language can be made without `new`.
  const callable = (Class) => {
    const made = { __proto__: null, [Class.name]: function (locales, options) { return new Class(locales, options); } }[Class.name];
    made.prototype = Class.prototype;
    define(made, 'supportedLocalesOf', supported);
    return made;
  };
  define(Intl, 'NumberFormat', callable(NumberFormat));
  define(Intl, 'DateTimeFormat', callable(DateTimeFormat));
  define(Intl, 'Collator', callable(Collator));
  define(Intl, 'PluralRules', PluralRules);
  define(Intl, 'RelativeTimeFormat', RelativeTimeFormat);
  define(Intl, 'ListFormat', ListFormat);
  define(Intl, 'getCanonicalLocales', (locales) => {
    const list = locales === undefined ? [] : own.isArray(locales) ? own.slice(locales) : [locales];
    for (let n = 0; n < list.length; n++) list[n] = own.replaceAll(own.String(list[n]), '_', '-');
    return list;
  });
  define(Intl, 'supportedValuesOf', (key) => {
    if (key === 'timeZone') return native.zoneNames();
    if (key === 'currency') return own.keysOf(tables('en-US').numbers.currency);
    if (key === 'unit') return own.keysOf(tables('en-US').units);
    throw new own.RangeError('Intl.supportedValuesOf has no list for `' + key + '`: use timeZone, currency or unit');
  });
  const names = ['DisplayNames', 'Segmenter', 'DurationFormat', 'Locale'];
  for (let n = 0; n < names.length; n++) {
    const name = names[n];
    define(Intl, name, { __proto__: null, [name]: function () { throw new own.TypeError(native.absence('Intl.' + name, undefined)); } }[name]);
  }
  own.defineProperty(Intl, Symbol.toStringTag, { __proto__: null, value: 'Intl', configurable: true });

  // The comparisons of `localeCompare`, which scripts use to sort: by locale, and by the options if these are plain values.
  const comparisons = own.create(null);
  const isPlain = (value) => value === undefined || typeof value === 'string' || typeof value === 'boolean';
  function comparisonOf(locales, options) {
    const make = () => new Collator(locales, options).compare;
    if (locales !== undefined && typeof locales !== 'string') return make();
    let key = locales ?? '';
    if (options !== undefined) {
      const { sensitivity, numeric, caseFirst, ignorePunctuation } = options;
      if (!isPlain(sensitivity) || !isPlain(caseFirst)) return make();
      key += '|' + sensitivity + '|' + (numeric === true) + '|' + caseFirst + '|' + (ignorePunctuation === true);
    }
    return (comparisons[key] ??= make());
  }

  // The formats of `toLocale…` calls without options, which scripts use in loops.
  const cache = own.create(null);
  const cached = (kind, locales, make) => (locales === undefined || typeof locales === 'string' ? (cache[kind + locales] ??= make()) : make());

  return own.freeze({
    __proto__: null,
    Intl,
    formatNumber: (value, locales, options) => (options === undefined ? cached('n', locales, () => new NumberFormat(locales)) : new NumberFormat(locales, options)).format(value),
    formatDate(time, locales, options, needed, defaults) {
      if (!own.isFinite(time)) return 'Invalid Date';
      const make = () => dateOptions(locales, options, needed, defaults);
      return dateText(options === undefined ? cached(defaults, locales, make) : make(), time);
    },
    compare: (a, b, locales, options) => comparisonOf(locales, options)(a, b),
  });
}
