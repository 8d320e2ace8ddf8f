// SPDX-License-Identifier: Apache-2.0

// Subscriptions: a tree that follows the server, and the stream that feeds it.

import { listOf, parse } from './schema'

export type Value = string | number | boolean | null | unknown[]

// Row is a list entry, or a container that is in no list.
export interface Row {
  id: string // unique in its tree
  target: string
  path: string
  list: string // its path without keys
  keys: Record<string, string> // of the path, enclosing lists first; the last one of a name
  values: Map<string, Value> // by path below the row
  time: number // milliseconds since 1970 of the newest value
}

interface Notification {
  time: string
  target: string
  set?: [string, Record<string, Value>][]
  delete?: string[]
}

export interface Sample {
  time: number
  value: number
}

export const samplesKept = 600

interface Series {
  samples: Sample[]
  keep: number
}

// Tree holds the rows of a subscription.
export class Tree {
  rows = new Map<string, Row>()
  lists = new Map<string, Map<string, Row>>()
  version = 0
  private series = new Map<string, Series>()
  onSet?: (row: Row) => void

  list(path: string): Row[] {
    return [...(this.lists.get(path)?.values() ?? [])]
  }

  // one returns the row of a container, or any entry of a list.
  one(path: string): Row | undefined {
    return this.lists.get(path)?.values().next().value
  }

  // follow keeps the newest samples of a leaf from now on and returns them, always the same array.
  follow(row: Row, leaf: string, keep = samplesKept): Sample[] {
    const id = row.id + '\n' + leaf
    let s = this.series.get(id)
    if (!s) {
      s = { samples: [], keep }
      this.series.set(id, s)
      push(s, row, leaf)
    }
    s.keep = Math.max(s.keep, keep)
    return s.samples
  }

  clear(): void {
    this.rows.clear()
    this.lists.clear()
    this.version++
  }

  apply(n: Notification): void {
    const time = Number(n.time) / 1e6
    for (const d of n.delete ?? []) this.delete(n.target, d)
    for (const [path, values] of n.set ?? []) {
      const id = n.target + ' ' + path
      let row = this.rows.get(id)
      if (!row) {
        row = { id, target: n.target, path, list: listOf(path), keys: {}, values: new Map(), time }
        for (const e of parse(path)) for (const [k, v] of e.keys) row.keys[k] = v
        this.rows.set(id, row)
        let of = this.lists.get(row.list)
        if (!of) this.lists.set(row.list, (of = new Map()))
        of.set(id, row)
      }
      row.time = time
      for (const leaf in values) {
        row.values.set(leaf, values[leaf]!)
        if (this.series.size) {
          const s = this.series.get(id + '\n' + leaf)
          if (s) push(s, row, leaf)
        }
      }
      this.onSet?.(row)
    }
    this.version++
  }

  private delete(target: string, path: string): void {
    const id = target + ' ' + path
    const below = (other: string) => other === id || other.startsWith(id + '/') || other.startsWith(id + '[')
    if (path === '/') return this.clear()
    if (this.rows.has(id)) this.remove(id)
    const list = listOf(path)
    for (const [name, of] of this.lists) {
      if (name === list || name.startsWith(list + '/')) for (const other of of.keys()) if (below(other)) this.remove(other)
      if (!list.startsWith(name + '/')) continue
      for (const row of of.values()) {
        if (!path.startsWith(row.path + '/')) continue
        const leaf = path.slice(row.path.length + 1)
        for (const l of row.values.keys()) if (l === leaf || l.startsWith(leaf + '/')) row.values.delete(l)
        if (!row.values.size) this.remove(row.id)
      }
    }
  }

  private remove(id: string): void {
    const row = this.rows.get(id)
    if (!row) return
    this.rows.delete(id)
    this.lists.get(row.list)?.delete(id)
  }
}

function push({ samples, keep }: Series, row: Row, leaf: string): void {
  if (row.values.has(leaf)) append(samples, { time: row.time, value: Number(row.values.get(leaf)) }, keep)
}

// append adds a sample, which replaces one of the same time.
export function append(samples: Sample[], s: Sample, keep = samplesKept): void {
  if (!Number.isFinite(s.value)) return
  if (samples.at(-1)?.time === s.time) samples.pop()
  samples.push(s)
  if (samples.length > keep) samples.splice(0, samples.length - keep)
}

const drawInterval = 100 // milliseconds

const longestSilence = 40_000 // milliseconds; the collector gives a sign of life every 15 s

export type Status = 'connecting' | 'live' | 'paused' | 'refused' | 'lost'

export interface Request {
  target?: string
  paths: string[]
  intervalMs?: number
}

// Live is a subscription that connects again after an error, and pauses while the page is hidden.
export class Live {
  tree = new Tree()
  status: Status = 'connecting'
  error = ''
  private stop?: AbortController
  private timer = 0
  private wait = 500
  private dirty = false
  private drawn = -1e9 // when it was drawn last
  private closed = false

  constructor(
    readonly request: Request,
    readonly changed: () => void,
  ) {
    document.addEventListener('visibilitychange', this.visible)
    void this.connect()
  }

  close(): void {
    this.closed = true
    document.removeEventListener('visibilitychange', this.visible)
    clearTimeout(this.timer)
    this.stop?.abort()
  }

  private visible = (): void => {
    if (document.hidden) {
      this.stop?.abort()
      clearTimeout(this.timer)
      this.set('paused')
    } else if (this.status === 'paused') void this.connect()
  }

  private set(status: Status, error = ''): void {
    this.status = status
    this.error = error
    this.notify()
  }

  // notify draws soon, in a frame of its own, and leaves frames for scrolling between two drawings.
  private notify(): void {
    if (this.dirty || this.closed) return
    this.dirty = true
    const draw = () => {
      this.dirty = false
      this.drawn = performance.now()
      if (!this.closed) this.changed()
    }
    const wait = Math.max(0, this.drawn + drawInterval - performance.now())
    setTimeout(() => (document.hidden ? draw() : requestAnimationFrame(draw)), wait)
  }

  private async connect(): Promise<void> {
    const stop = (this.stop = new AbortController())
    if (this.status !== 'refused') this.set('connecting', this.error)
    try {
      const resp = await fetch('/api/subscribe', {
        method: 'POST',
        signal: stop.signal,
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(this.request),
      })
      if (!resp.ok) {
        const { error } = (await resp.json().catch(() => ({ error: resp.statusText }))) as { error: string }
        if (this.closed || stop.signal.aborted) return
        // It is tried again: a plugin that starts brings its paths.
        this.set('refused', error)
        if (resp.status !== 401) this.again()
        return
      }
      this.tree.clear()
      await this.read(resp.body!.pipeThrough(new TextDecoderStream()).getReader())
      throw new Error('the collector has ended the stream, or is silent')
    } catch (e) {
      if (this.closed || stop.signal.aborted) return
      this.set('lost', e instanceof Error ? e.message : String(e))
      this.again()
    }
  }

  private again(): void {
    this.timer = setTimeout(() => void this.connect(), this.wait)
    this.wait = Math.min(this.wait * 2, 10_000)
  }

  private async read(reader: ReadableStreamDefaultReader<string>): Promise<void> {
    let rest = ''
    for (;;) {
      const silent = setTimeout(() => void reader.cancel(), longestSilence)
      const { done, value } = await reader.read().finally(() => clearTimeout(silent))
      if (done) return
      const events = (rest + value).split('\n\n')
      rest = events.pop()!
      for (const e of events) this.event(e)
      if (events.length) this.notify()
    }
  }

  private event(text: string): void {
    if (text.startsWith('data: ')) this.tree.apply(JSON.parse(text.slice(6)) as Notification)
    else if (text.startsWith('event: sync')) {
      this.wait = 500
      this.set('live')
    }
  }
}
