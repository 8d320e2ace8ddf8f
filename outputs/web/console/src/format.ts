// SPDX-License-Identifier: Apache-2.0

// Values as text.

import type { Value } from './live'
import type { SchemaNode } from './schema'

// group adds separators to the digits of an integer, which may exceed a JavaScript number.
const group = (digits: string): string => digits.replace(/\B(?=(\d{3})+$)/g, '\u202f')

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
  for (const [unit, size] of [['Gbit/s', 1e9], ['Mbit/s', 1e6], ['kbit/s', 1e3]] as const)
    if (bits >= size) return `${round(bits / size)} ${unit}`
  return `${round(bits)} bit/s`
}

export function clock(ms: number): string {
  const d = new Date(ms)
  return d.toLocaleTimeString(undefined, { hour12: false }) + '.' + String(d.getMilliseconds()).padStart(3, '0')
}

// text returns a value for people. Integers keep every digit.
export function text(v: Value | undefined, n?: SchemaNode): string {
  if (v === undefined || v === null) return ''
  if (typeof v === 'boolean') return v ? 'yes' : 'no'
  const s = typeof v === 'object' ? JSON.stringify(v) : String(v)
  if (!n) return s
  if (n.type === 'timestamp' && /^\d+$/.test(s)) return s === '0' ? '' : new Date(Number(s) / 1e6).toLocaleString()
  if (n.units === 'nanoseconds' || n.type === 'nanoseconds') return duration(Number(s))
  if (n.type === 'epoch-number') return s
  if (/^-?\d+$/.test(s) && n.base !== 'string') return group(s)
  if (n.base === 'decimal64') return String(Number(Number(s).toPrecision(6)))
  return s
}
