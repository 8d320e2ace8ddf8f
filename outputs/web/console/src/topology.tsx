// SPDX-License-Identifier: Apache-2.0

// The network: switches by state, links by load and loss.

import type { Core, ElementDefinition } from 'cytoscape'
import { useEffect, useMemo, useRef } from 'preact/hooks'
import { go, href, useApp, useLive } from './app'
import { Details } from './details'
import { rate, round } from './format'
import type { Live, Row } from './live'
import { find, type SchemaNode } from './schema'
import { Table, type TableColumn } from './table'

export type Health = 'ok' | 'warning' | 'down' | 'backup'

interface Switch {
  name: string
  row: Row
  health: Health
  why: string
}

// Direction is what one end of a link sends.
interface Direction {
  from: string
  to: string
  load: number // bits per second; NaN if nothing counts it
  speed: number // of the port in bits per second; NaN if unknown
  lost: number // packets in the newest epoch or sample; NaN if nothing counts them
}

interface Edge {
  id: string
  ends: [string, string] // ports, "leaf1/3"
  status: string
  directions: Direction[]
}

const node = (port: string): string => port.slice(0, port.lastIndexOf('/'))

export function healthOf(row: Row, missing: Set<string>): [Health, string] {
  const state = String(row.values.get('state/connection') ?? 'down')
  const error = String(row.values.get('state/last-error') ?? '')
  if (state === 'backup') return ['backup', 'another controller is primary']
  if (state !== 'ready') return ['down', `${state}: ${error}`]
  if (missing.has(row.keys.name!)) return ['warning', 'not in the newest epoch: ' + (error || 'its read-out was late')]
  return ['ok', error]
}

export const missingOf = (epoch?: Row): Set<string> =>
  new Set(String(epoch?.values.get('missing') ?? '').split(',').map((s) => s.trim()).filter(Boolean))

// Meters compute rates from counters of ports and from results of links.
class Meters {
  private ports = new Map<string, Row>()

  constructor(
    private interfaces: Live | undefined,
    private results: Row[],
    private epochSeconds: number,
  ) {
    for (const row of interfaces?.tree.list('/interfaces/interface') ?? []) {
      const id = row.values.get('state/id')
      if (id !== undefined) this.ports.set(`${row.target}/${id}`, row)
    }
  }

  // change returns how much a counter has grown between its two newest values, and in how long.
  private change(row: Row, leaf: string): [number, number] {
    const s = this.interfaces!.tree.follow(row, `state/counters/${leaf}`)
    const last = s.at(-1)
    const before = s.at(-2)
    if (!last || !before || last.value < before.value) return [NaN, NaN]
    return [last.value - before.value, (last.time - before.time) / 1000]
  }

  direction(from: string, to: string): Direction {
    const d: Direction = { from, to, load: NaN, speed: NaN, lost: NaN }
    const port = this.ports.get(from)
    if (port) {
      const [bytes, seconds] = this.change(port, 'out-octets')
      d.load = (bytes * 8) / seconds
      const speed = /SPEED_(\d+)(MB|GB)/.exec(String(port.values.get('ethernet/state/port-speed') ?? ''))
      if (speed) d.speed = Number(speed[1]) * (speed[2] === 'GB' ? 1e9 : 1e6)
      for (const leaf of ['out-discards', 'out-errors']) {
        const [n] = this.change(port, leaf)
        if (!Number.isNaN(n)) d.lost = (Number.isNaN(d.lost) ? 0 : d.lost) + n
      }
    }
    for (const r of this.results) {
      if (r.values.get('state/from') !== node(from) || r.values.get('state/to') !== node(to)) continue
      const load = (Number(r.values.get('state/bytes')) * 8) / this.epochSeconds
      if (Number.isNaN(d.load)) d.load = load
      const lost = Number(r.values.get('state/lost-high'))
      if (!Number.isNaN(lost)) d.lost = Math.max(Number.isNaN(d.lost) ? 0 : d.lost, lost)
    }
    return d
  }
}

// places returns a position for each node: in rows by the distance from the nodes with the fewest
// links of their kind (the letters of their names), or on a circle if there is one row.
export function places(names: string[], pairs: [string, string][]): Map<string, { x: number; y: number }> {
  const near = new Map(names.map((n) => [n, new Set<string>()]))
  for (const [a, b] of pairs) {
    near.get(a)?.add(b)
    near.get(b)?.add(a)
  }
  const kinds = new Map<string, string[]>()
  for (const n of names) {
    const kind = /^[^\d]*/.exec(n)![0]
    kinds.set(kind, [...(kinds.get(kind) ?? []), n])
  }
  const degree = (of: string[]) => of.reduce((sum, n) => sum + near.get(n)!.size, 0) / of.length
  const lowest = [...kinds.values()].sort((a, b) => degree(a) - degree(b))[0] ?? []
  const tier = new Map(lowest.map((n) => [n, 0]))
  let at = lowest
  for (let depth = 1; at.length; depth++) {
    const next: string[] = []
    for (const n of at)
      for (const m of near.get(n)!)
        if (!tier.has(m)) {
          tier.set(m, depth)
          next.push(m)
        }
    at = next
  }
  const rows: string[][] = []
  const order = new Intl.Collator(undefined, { numeric: true })
  for (const n of [...names].sort(order.compare)) (rows[tier.get(n) ?? 0] ??= []).push(n)
  const widest = Math.max(1, ...rows.map((r) => r?.length ?? 0))
  const out = new Map<string, { x: number; y: number }>()
  rows.forEach((row, i) =>
    row?.forEach((n, j) => {
      if (rows.length === 1) {
        const angle = (2 * Math.PI * j) / row.length
        out.set(n, { x: Math.sin(angle) * widest * 25, y: -Math.cos(angle) * widest * 25 })
      } else out.set(n, { x: ((j + 0.5) / row.length - 0.5) * widest * 90, y: -i * Math.max(120, widest * 12) })
    }),
  )
  return out
}

const largest = 1.4 // zoom of a small network

// color returns green to red for 0 to 1.
const color = (share: number): string => (Number.isNaN(share) ? '#8a8f98' : `hsl(${Math.round(120 - 120 * Math.min(1, share))}, 65%, 45%)`)

const healthColor: Record<Health, string> = { ok: '#2f9e5f', warning: '#d69a1e', down: '#d64545', backup: '#6b7fa8' }

function edgesOf(base: Live, meters: Meters): Edge[] {
  const edges = new Map<string, Edge>()
  for (const row of base.tree.list('/collector/links/link')) {
    const a = row.keys.port!
    const b = String(row.values.get('state/peer-configured') || row.values.get('state/peer-discovered') || '')
    if (!b) continue
    const id = [a, b].sort().join(' – ')
    const e = edges.get(id)
    if (e) continue
    edges.set(id, {
      id,
      ends: [a, b],
      status: String(row.values.get('state/status') ?? ''),
      directions: [meters.direction(a, b), meters.direction(b, a)],
    })
  }
  return [...edges.values()]
}

const most = (of: number[]): number => of.reduce((a, b) => (Number.isNaN(a) || b > a ? b : a), NaN)

const switchColumns: TableColumn<Switch>[] = [
  { title: 'switch', text: (s) => s.name },
  { title: 'state', text: (s) => String(s.row.values.get('state/connection') ?? '') },
  {
    title: 'read-out',
    right: true,
    text: (s) => `${round(Number(s.row.values.get('state/readout-time') ?? 0) / 1e6)} ms`,
    number: (s) => Number(s.row.values.get('state/readout-time') ?? NaN),
  },
  {
    title: 'epochs lost',
    right: true,
    text: (s) => String(s.row.values.get('state/epochs-lost') ?? ''),
    number: (s) => Number(s.row.values.get('state/epochs-lost') ?? NaN),
  },
  { title: 'remark', wide: true, text: (s) => s.why },
]

interface EdgeRow extends Direction {
  id: string
  status: string
}

const linkColumns: TableColumn<EdgeRow>[] = [
  { title: 'from', text: (d) => d.from },
  { title: 'to', text: (d) => d.to },
  { title: 'load', right: true, text: (d) => (Number.isNaN(d.load) ? 'not counted' : rate(d.load)), number: (d) => d.load },
  { title: 'of the speed', right: true, text: (d) => (Number.isNaN(d.load / d.speed) ? '' : `${round((d.load / d.speed) * 100)} %`), number: (d) => d.load / d.speed },
  { title: 'lost packets', right: true, text: (d) => (Number.isNaN(d.lost) ? 'not counted' : String(d.lost)), number: (d) => d.lost },
  { title: 'link', text: (d) => d.status },
]

export function Topology({ selected }: { selected: string }) {
  const { base, schema } = useApp()
  const has = (path: string) => find(schema, path) !== undefined
  const interfaces = useLive(
    has('/interfaces/interface/state/id')
      ? {
          target: '*',
          paths: ['/interfaces/interface/state/id', '/interfaces/interface/state/counters', '/interfaces/interface/ethernet/state/port-speed'].filter(has),
        }
      : null,
  )
  const results = useLive(has('/omnimon/links/link') ? { paths: ['/omnimon/links/link'] } : null)
  const epoch = base.tree.one('/collector/epoch/state')
  const length = Number(base.tree.one('/collector/state')?.values.get('epoch-length') ?? 1e9) / 1e9
  const switches = useMemo<Switch[]>(() => {
    const missing = missingOf(epoch)
    return base.tree.list('/collector/devices/device').map((row) => {
      const [health, why] = healthOf(row, missing)
      return { name: row.keys.name!, row, health, why }
    })
  }, [base.tree.version])
  const edges = useMemo(
    () => edgesOf(base, new Meters(interfaces, results?.tree.list('/omnimon/links/link') ?? [], length)),
    [base.tree.version, interfaces?.tree.version, results?.tree.version],
  )
  const directions = useMemo(
    () => edges.flatMap((e) => e.directions.map((d): EdgeRow => ({ ...d, id: d.from + ' ' + d.to, status: e.status }))),
    [edges],
  )
  const choose = (name: string) => go(href('topology', [], name === selected ? {} : { select: name }), true)
  const chosen = switches.find((s) => s.name === selected)
  const count = (h: Health) => switches.filter((s) => s.health === h).length
  return (
    <>
      <h1>
        Topology{' '}
        <small>
          {switches.length} switches, {edges.length} links
        </small>
      </h1>
      <ul class="legend">
        {(['ok', 'warning', 'down', 'backup'] as const).map((h) =>
          count(h) ? (
            <li key={h}>
              <i style={{ background: healthColor[h] }} /> {count(h)} {h}
            </li>
          ) : null,
        )}
        <li>
          <i style={{ background: color(0) }} /> to <i style={{ background: color(1) }} />{' '}
          {directions.some((d) => d.speed > 0) ? 'load of the link, of its speed' : 'load of the link, of the busiest one'}
        </li>
        <li>
          <i class="dashed" /> packets lost
        </li>
      </ul>
      <Graph switches={switches} edges={edges} selected={selected} onSelect={choose} />
      {chosen && <Details key={chosen.name} row={chosen.row} tree={base.tree} node={find(schema, '/collector/devices/device') as SchemaNode} />}
      <h2>Switches</h2>
      <Table label="Switches" rows={switches} columns={switchColumns} id={(s) => s.name} selected={selected} onSelect={(s) => choose(s.name)} height="16rem" />
      <h2>Links</h2>
      <Table label="Links" rows={directions} columns={linkColumns} id={(d) => d.id} height="16rem" order={[2, true]} />
    </>
  )
}

function Graph({ switches, edges, selected, onSelect }: { switches: Switch[]; edges: Edge[]; selected: string; onSelect: (name: string) => void }) {
  const at = useRef<HTMLDivElement>(null)
  const graph = useRef<Core>(undefined)
  const select = useRef(onSelect)
  select.current = onSelect
  const shape = switches.map((s) => s.name).join() + '|' + edges.map((e) => e.id).join()

  useEffect(() => {
    let closed = false
    let unwatch = () => {}
    void import('cytoscape').then(({ default: cytoscape }) => {
      if (closed || !at.current) return
      const names = switches.map((s) => s.name)
      const linked = edges.filter((e) => e.ends.every((p) => names.includes(node(p))))
      const position = places(names, linked.map((e) => [node(e.ends[0]), node(e.ends[1])]))
      const elements: ElementDefinition[] = [
        ...names.map((name) => ({ data: { id: name }, position: position.get(name)! })),
        ...linked.map((e) => ({ data: { id: e.id, source: node(e.ends[0]), target: node(e.ends[1]) } })),
      ]
      const dark = () => getComputedStyle(document.documentElement).getPropertyValue('--text').trim()
      const g = cytoscape({
        container: at.current,
        elements,
        layout: { name: 'preset', padding: 24 },
        minZoom: 0.1,
        maxZoom: 3,
        autounselectify: true,
        style: [
          {
            selector: 'node',
            style: {
              label: 'data(id)',
              color: dark(),
              'font-size': 12,
              'text-valign': 'bottom',
              'text-margin-y': 4,
              'min-zoomed-font-size': 7,
              width: 26,
              height: 26,
              shape: 'round-rectangle',
            },
          },
          { selector: 'node[color]', style: { 'background-color': 'data(color)' as never } },
          { selector: 'node.on', style: { 'border-width': 4, 'border-color': dark() } },
          {
            selector: 'edge[color]',
            style: { 'line-color': 'data(color)' as never, width: 'data(width)' as never, 'curve-style': 'haystack' },
          },
          { selector: 'edge.lossy', style: { 'line-style': 'dashed' } },
        ],
      })
      g.on('tap', 'node', (e) => select.current((e.target as { id(): string }).id()))
      const theme = () => g.nodes().style('color', dark())
      addEventListener('themechange', theme)
      const resized = new ResizeObserver(() => {
        g.resize()
        g.fit(undefined, 24)
        if (g.zoom() > largest) {
          g.zoom(largest)
          g.center()
        }
      })
      resized.observe(at.current)
      unwatch = () => {
        resized.disconnect()
        removeEventListener('themechange', theme)
      }
      graph.current = g
      paint(g, switches, edges, selected)
    })
    return () => {
      closed = true
      unwatch()
      graph.current?.destroy()
      graph.current = undefined
    }
  }, [shape])

  useEffect(() => {
    if (graph.current) paint(graph.current, switches, edges, selected)
  }, [switches, edges, selected])

  return (
    <div
      class="graph"
      ref={at}
      role="img"
      aria-label={`${switches.length} switches and ${edges.length} links; the tables below have the same values`}
    />
  )
}

// paint applies states, loads and losses to the drawn elements.
function paint(g: Core, switches: Switch[], edges: Edge[], selected: string): void {
  const busiest = most(edges.flatMap((e) => e.directions.map((d) => d.load)))
  g.batch(() => {
    for (const s of switches) {
      const n = g.getElementById(s.name)
      n.data('color', healthColor[s.health])
      n.toggleClass('on', s.name === selected)
    }
    for (const e of edges) {
      const share = most(e.directions.map((d) => d.load / (Number.isNaN(d.speed) ? busiest : d.speed)))
      const x = g.getElementById(e.id)
      x.data('color', color(share))
      x.data('width', Number.isNaN(share) ? 2 : 2 + 6 * Math.min(1, share))
      x.toggleClass('lossy', e.directions.some((d) => d.lost > 0))
    }
  })
}
