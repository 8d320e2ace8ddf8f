// SPDX-License-Identifier: Apache-2.0

// Values as text.

import type { Value } from './live'
import type { SchemaNode } from './schema'

// group adds separators to the digits of an integer, which may exceed a JavaScript number.
const group = (digits: string): string => digits.replace(/\B(?=(\d{3})+$)/g, '\u202f')

export const count = (n: number): string => group(String(n))

export function duration(ns: number): string {
  if (!ns) return '0'
  const abs = Math.abs(ns)
  if (abs < 1e3) return `${ns} ns`
  if (abs < 1e6) return `${round(ns / 1e3)} µs`
  if (abs < 1e9) return `${round(ns / 1e6)} ms`
  if (abs < 120e9) return `${round(ns / 1e9)} s`
  return `${round(ns / 60e9)} min`
}

export const round = (x: number): string => String(Number(x.toPrecision(3)))

export function rate(bits: number): string {
  for (const [unit, size] of [['Tbit/s', 1e12], ['Gbit/s', 1e9], ['Mbit/s', 1e6], ['kbit/s', 1e3]] as const)
    if (bits >= size) return `${round(bits / size)} ${unit}`
  return `${round(bits)} bit/s`
}

// percent keeps what distinguishes a share from none and from all.
export function percent(share: number): string {
  const p = share * 100
  const near = Math.abs(p) < 50 ? Math.abs(p) : Math.abs(100 - p) // to none or to all
  if (!near || near >= 0.01) return `${Number(p.toFixed(2))} %`
  if (near < 1e-6) return p < 50 ? 'below 0.000001 %' : p < 100 ? 'above 99.999999 %' : `${p} %`
  return `${p.toFixed(Math.ceil(-Math.log10(near)) + 1).replace(/0+$/, '')} %`
}

// timeOfDay has the hours 00 to 23 in every language.
const timeOfDay = (d: Date): string => d.toLocaleTimeString(undefined, { hourCycle: 'h23' })

export function clock(ms: number): string {
  const d = new Date(ms)
  return timeOfDay(d) + '.' + String(d.getMilliseconds()).padStart(3, '0')
}

// The newest epoch: its number, its end and the length of epochs, in milliseconds.
let newest = { number: 0, end: 0, length: 0 }

export function setEpoch(number: number, end: number, length: number): void {
  newest = { number, end, length }
}

// epochTime returns the end of an epoch as a time of day, with the date if it is not of this day;
// its number if no epoch is known.
export function epochTime(number: number): string {
  if (!number || !newest.number || !newest.length) return String(number)
  const d = new Date(newest.end - (newest.number - number) * newest.length)
  const time = timeOfDay(d)
  const part = newest.length % 1000 ? '.' + String(d.getMilliseconds()).padStart(3, '0') : ''
  return (d.toDateString() === new Date(newest.end).toDateString() ? '' : d.toLocaleDateString() + ' ') + time + part
}

// raw returns a value as gNMI has it.
export function raw(v: Value | undefined): string {
  return v === undefined || v === null ? '' : typeof v === 'object' ? JSON.stringify(v) : String(v)
}

// text returns a value for people. Integers keep every digit.
export function text(v: Value | undefined, n?: SchemaNode): string {
  if (v === undefined || v === null) return ''
  if (typeof v === 'boolean') return v ? 'yes' : 'no'
  const s = raw(v)
  if (!n) return s
  if (n.type === 'timestamp' && /^\d+$/.test(s)) return s === '0' ? '' : new Date(Number(s) / 1e6).toLocaleString(undefined, { hourCycle: 'h23' })
  if (n.units === 'nanoseconds' || n.type === 'nanoseconds') return duration(Number(s))
  if (n.type === 'epoch-number') return epochTime(Number(s))
  if (n.share) return percent(Number(s))
  if (/^-?\d+$/.test(s) && n.base !== 'string') return group(s)
  if (n.base === 'decimal64') return String(Number(Number(s).toPrecision(6)))
  return s
}
