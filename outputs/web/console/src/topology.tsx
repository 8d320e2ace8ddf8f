// SPDX-License-Identifier: Apache-2.0

// The network: switches by state, links by load and loss.

import type { Core, ElementDefinition } from 'cytoscape'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { alertLists } from './alerts'
import { go, href, useApp, useLive, useRows } from './app'
import { Chart } from './chart'
import { Details } from './details'
import { count, percent, rate, round } from './format'
import { append, type Live, type Row, type Sample } from './live'
import { columnsOf } from './plugin'
import { above, entryPath, find, keyLeaf, switchKey, tables, type SchemaNode } from './schema'
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
  id: string // its ports: "leaf1/3 spine1/1"
  from: string
  to: string
  counted: boolean // its port has counters, of which there may be one sample so far
  load: number // bits per second; NaN if nothing counts it
  speed: number // of the port in bits per second; NaN if unknown
  lost: number // packets in the newest epoch or sample, at least; NaN if nothing counts them
  provisional: number // packets that have not arrived, and may be late
  time: number // of the newest counter
}

interface Edge {
  id: string
  ends: [string, string] // ports, "leaf1/3"
  source: string // what reports the link
  warning: boolean // the sources contradict each other
  directions: Direction[]
}

// Traffic is what the ports of a switch receive and send, in bits per second.
interface Traffic {
  received: number
  sent: number
  time: number
}

const node = (port: string): string => port.slice(0, port.lastIndexOf('/'))

export function healthOf(row: Row, missing: Set<string>): [Health, string] {
  const state = String(row.values.get('state/connection') ?? 'DOWN')
  const error = String(row.values.get('state/last-error') ?? '')
  if (state === 'BACKUP') return ['backup', 'another controller is primary']
  if (state !== 'READY') return ['down', `${state}: ${error}`]
  if (missing.has(row.keys.name!)) return ['warning', 'not in the newest epoch: ' + (error || 'its read-out was late')]
  return ['ok', error]
}

export const missingOf = (epoch?: Row): Set<string> =>
  new Set(String(epoch?.values.get('missing') ?? '').split(',').map((s) => s.trim()).filter(Boolean))

// Meters compute rates from counters of ports and from results of links.
class Meters {
  private ports = new Map<string, Row>()
  private results: Map<string, Row>

  constructor(
    private interfaces: Live | undefined,
    results: Row[],
    private epochSeconds: number,
  ) {
    for (const row of interfaces?.tree.list('/interfaces/interface') ?? []) {
      const id = row.values.get('state/id')
      if (id !== undefined) this.ports.set(`${row.target}/${id}`, row)
    }
    this.results = new Map(results.map((r) => [r.keys.link!, r]))
  }

  // change returns how much a counter has grown between its two newest values, and in how long.
  private change(row: Row, leaf: string): [number, number] {
    const s = this.interfaces!.tree.follow(row, `state/counters/${leaf}`, 2)
    const last = s.at(-1)
    const before = s.at(-2)
    if (!last || !before || last.value < before.value) return [NaN, NaN]
    return [last.value - before.value, (last.time - before.time) / 1000]
  }

  private rate(row: Row, leaf: string): number {
    const [bytes, seconds] = this.change(row, leaf)
    return (bytes * 8) / seconds
  }

  direction(from: string, to: string): Direction {
    const d: Direction = { id: `${from} ${to}`, from, to, counted: false, load: NaN, speed: NaN, lost: NaN, provisional: 0, time: 0 }
    const port = this.ports.get(from)
    if (port) {
      d.counted = port.values.has('state/counters/out-octets')
      d.load = this.rate(port, 'out-octets')
      d.time = port.time
      const speed = /SPEED_(\d+)(MB|GB)/.exec(String(port.values.get('ethernet/state/port-speed') ?? ''))
      if (speed) d.speed = Number(speed[1]) * (speed[2] === 'GB' ? 1e9 : 1e6)
      for (const leaf of ['out-discards', 'out-errors']) {
        const [n] = this.change(port, leaf)
        if (!Number.isNaN(n)) d.lost = (Number.isNaN(d.lost) ? 0 : d.lost) + n
      }
    }
    const result = this.results.get(`${from}~${to}`)
    if (!result) return d
    if (Number.isNaN(d.load)) {
      d.load = (Number(result.values.get('state/bytes')) * 8) / this.epochSeconds
      d.time = result.time
    }
    // What is provisional may be late, and the upper bound of a loss may be far off.
    const lost = Number(result.values.get('state/lost-low') ?? NaN)
    if (result.values.get('state/provisional') === true && lost > 0) d.provisional = lost
    else if (!Number.isNaN(lost)) d.lost = Math.max(Number.isNaN(d.lost) ? 0 : d.lost, lost)
    return d
  }

  // traffic returns the sums over the ports of each switch.
  traffic(): Map<string, Traffic> {
    const out = new Map<string, Traffic>()
    for (const row of this.ports.values()) {
      const t = out.get(row.target) ?? { received: 0, sent: 0, time: 0 }
      const received = this.rate(row, 'in-octets')
      const sent = this.rate(row, 'out-octets')
      if (Number.isNaN(received + sent)) continue
      out.set(row.target, { received: t.received + received, sent: t.sent + sent, time: Math.max(t.time, row.time) })
    }
    return out
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

const unknown = '#8a8f98'

// utilization returns green to red for 0 to 1.
const utilization = (share: number): string => `hsl(${Math.round(120 - 120 * Math.min(1, share))}, 65%, 45%)`

// Loads of links whose speed is not known, by powers of ten, in a color that is no verdict.
const decades = [1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10]
const decade = (load: number): number => decades.filter((d) => load >= d).length / decades.length
const absolute = (load: number): string => `hsl(${Math.round(190 + 60 * decade(load))}, 65%, ${Math.round(62 - 22 * decade(load))}%)`

// look returns the color and the width of a link, by the direction that has more.
function look(e: Edge): { color: string; width: number } {
  const share = most(e.directions.map((d) => d.load / d.speed))
  if (!Number.isNaN(share)) return { color: utilization(share), width: 2 + 6 * Math.min(1, share) }
  const load = most(e.directions.map((d) => d.load))
  return Number.isNaN(load) ? { color: unknown, width: 2 } : { color: absolute(load), width: 2 + 6 * decade(load) }
}

const healthColor: Record<Health, string> = { ok: '#2f9e5f', warning: '#d69a1e', down: '#d64545', backup: '#6b7fa8' }

// sources says what reports a link, by the result of the collector's comparison.
const sources: Record<string, (discovered: string) => string> = {
  CONFIRMED: () => 'configuration, LLDP',
  DISCOVERED: () => 'LLDP',
  CONFIGURED: () => 'configuration',
  MISSING: () => 'configuration; LLDP does not report it',
  MISMATCH: (discovered) => `configuration; LLDP reports ${discovered}`,
}

function edgesOf(base: Live, meters: Meters): Edge[] {
  const edges = new Map<string, Edge>()
  for (const row of base.tree.list('/collector/links/link')) {
    const a = row.keys.port!
    const discovered = String(row.values.get('state/peer-discovered') ?? '')
    const b = String(row.values.get('state/peer-configured') || discovered)
    if (!b) continue
    const status = String(row.values.get('state/status') ?? '')
    const id = [a, b].sort().join(' – ')
    const e = edges.get(id) ?? { id, ends: [a, b], source: '', warning: false, directions: [meters.direction(a, b), meters.direction(b, a)] }
    // An end whose neighbor is another one says more than one whose neighbor is right.
    const warning = status === 'MISSING' || status === 'MISMATCH'
    if (!e.source || (warning && !e.warning)) e.source = (sources[status] ?? (() => status))(discovered)
    e.warning ||= warning
    edges.set(id, e)
  }
  return [...edges.values()]
}

const most = (of: number[]): number => of.reduce((a, b) => (Number.isNaN(a) || b > a ? b : a), NaN)

const switchColumns: TableColumn<Switch>[] = [
  { title: 'switch', key: true, text: (s) => s.name },
  { title: 'state', key: true, text: (s) => String(s.row.values.get('state/connection') ?? '') },
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
  source: string
}

// lossText says which part of a loss is certain.
const lossText = (d: Pick<Direction, 'lost' | 'provisional' | 'counted'>): string => {
  const lost = Number.isNaN(d.lost) ? (d.provisional ? '' : d.counted ? '' : 'not counted') : count(d.lost)
  return d.provisional ? `${lost} (${count(d.provisional)} provisional)`.trim() : lost
}

const usage = (d: Direction): string => (Number.isNaN(d.load / d.speed) ? '' : percent(d.load / d.speed))

const loadText = (load: number, counted: boolean): string => (!Number.isNaN(load) ? rate(load) : counted ? 'with the next sample' : 'not counted')

const linkColumns: TableColumn<EdgeRow>[] = [
  { title: 'from', key: true, text: (d) => d.from },
  { title: 'to', key: true, text: (d) => d.to },
  { title: 'load', right: true, text: (d) => loadText(d.load, d.counted), number: (d) => d.load },
  { title: 'of the speed', right: true, text: usage, number: (d) => d.load / d.speed },
  { title: 'lost packets', right: true, text: lossText, number: (d) => d.lost },
  { title: 'source', text: (d) => d.source },
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
  const history = useRef(new Map<string, Sample[]>())
  const switches = useMemo<Switch[]>(() => {
    const missing = missingOf(epoch)
    return base.tree.list('/collector/devices/device').map((row) => {
      const [health, why] = healthOf(row, missing)
      return { name: row.keys.name!, row, health, why }
    })
  }, [base.tree.version])
  const [edges, traffic] = useMemo(() => {
    const meters = new Meters(interfaces, results?.tree.list('/omnimon/links/link') ?? [], length)
    const edges = edgesOf(base, meters)
    const traffic = meters.traffic()
    const keep = (id: string, time: number, value: number) => {
      const of = history.current.get(id) ?? []
      append(of, { time, value })
      history.current.set(id, of)
    }
    for (const d of edges.flatMap((e) => e.directions)) keep(d.id, d.time, d.load)
    for (const [name, t] of traffic) {
      keep(name + ' received', t.time, t.received)
      keep(name + ' sent', t.time, t.sent)
    }
    return [edges, traffic]
  }, [base.tree.version, interfaces?.tree.version, results?.tree.version])
  const directions = useMemo(() => edges.flatMap((e) => e.directions.map((d): EdgeRow => ({ ...d, source: e.source }))), [edges])
  // Alerts of plugins name a direction as OmniMon does; they are about losses that are settled.
  const alerted = useMemo(
    () =>
      new Set(
        alertLists(schema)
          .flatMap((l) => base.tree.list(l.path))
          .filter((r) => String(r.values.get('state/active')) === 'true')
          .map((r) => r.keys.subject ?? ''),
      ),
    [base.tree.version, schema],
  )
  const choose = (id: string) => go(href('topology', [], id === selected ? {} : { select: id }), true)
  const chosen = switches.find((s) => s.name === selected)
  const link = edges.find((e) => e.directions.some((d) => d.id === selected))
  const health = (h: Health) => switches.filter((s) => s.health === h).length
  const speeds = directions.some((d) => !Number.isNaN(d.load / d.speed))
  const loads = directions.some((d) => !Number.isNaN(d.load) && Number.isNaN(d.speed))
  const bySource = new Map<string, number>()
  for (const e of edges) bySource.set(e.source.replace(/;.*/, ''), (bySource.get(e.source.replace(/;.*/, '')) ?? 0) + 1)
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
          health(h) ? (
            <li key={h}>
              <i style={{ background: healthColor[h] }} /> {health(h)} {h}
            </li>
          ) : null,
        )}
        {[...bySource].map(([source, n]) => (
          <li key={source}>
            {n} {n === 1 ? 'link' : 'links'} from {source}
          </li>
        ))}
        {speeds && (
          <li>
            <i style={{ background: utilization(0) }} /> 0 % to <i style={{ background: utilization(0.5) }} /> <i style={{ background: utilization(1) }} /> 100
            % of the port's speed
          </li>
        )}
        {loads && (
          <li>
            <i style={{ background: absolute(0) }} /> below {rate(decades[0]!)} to <i style={{ background: absolute(decades[3]!) }} />{' '}
            <i style={{ background: absolute(decades.at(-1)!) }} /> {rate(decades.at(-1)!)} where the speed is unknown
          </li>
        )}
        {!!edges.length && (
          <li>
            <i style={{ background: unknown }} /> load not counted
          </li>
        )}
        <li>
          <i class="dashed" /> packets lost for certain
        </li>
      </ul>
      <Graph switches={switches} edges={edges} alerted={alerted} selected={selected} onSelect={choose} />
      {chosen && (
        <SwitchDetails
          key={chosen.name}
          of={chosen}
          traffic={traffic.get(chosen.name)}
          directions={directions.filter((d) => node(d.from) === chosen.name || node(d.to) === chosen.name)}
          history={history.current}
          version={interfaces?.tree.version ?? 0}
        />
      )}
      {link && <LinkDetails key={link.id} of={link} history={history.current} version={(interfaces?.tree.version ?? 0) + (results?.tree.version ?? 0)} />}
      {selected && !chosen && !link && !!switches.length && (
        <p class="notice">No switch and no link is named {selected}.</p>
      )}
      <h2>Switches</h2>
      <Table label="Switches" rows={switches} columns={switchColumns} id={(s) => s.name} selected={selected} onSelect={(s) => choose(s.name)} height="16rem" empty="The configuration names no switch." />
      <h2>Links</h2>
      <Table
        label="Links"
        rows={directions}
        columns={linkColumns}
        id={(d) => d.id}
        selected={selected}
        onSelect={(d) => choose(d.id)}
        height="16rem"
        order={[2, true]}
        empty="No link: neither the configuration nor LLDP names one."
      />
    </>
  )
}

interface SwitchProps {
  of: Switch
  traffic?: Traffic
  directions: EdgeRow[]
  history: Map<string, Sample[]>
  version: number
}

// switchLists returns the lists of plugins with a row or a few for a switch, rather than for each
// of its flows.
const switchLists = (schema: SchemaNode): SchemaNode[] =>
  (schema.children ?? [])
    .filter((n) => n.plugin)
    .flatMap((n) => tables(n).lists)
    .filter((l) => switchKey(l) && l.keys!.every((k) => k === switchKey(l) || keyLeaf(l, k)?.type === 'dimension'))

// leafList has the leaves that the collector configures at switches over gNMI.
const leafList = '/collector/devices/device/configuration/leaves/leaf'

// SwitchDetails is what is known of the selected switch: its state, its traffic, its losses, its
// configuration, and what plugins report of it.
function SwitchDetails({ of: { name, row, health, why }, traffic, directions, history, version }: SwitchProps) {
  const { base, schema } = useApp()
  const lists = useMemo(() => switchLists(schema), [schema])
  const live = useLive(lists.length ? { paths: lists.map((l) => entryPath(l, (n, k) => (n === l && k === switchKey(l) ? name : undefined))) } : null)
  const lost = directions.filter((d) => node(d.from) === name)
  const sum = (of: number[]) => (of.every(Number.isNaN) ? NaN : of.reduce((a, b) => a + (Number.isNaN(b) ? 0 : b), 0))
  const counted = directions.some((d) => node(d.from) === name && d.counted)
  const losses = sum(lost.map((d) => d.lost))
  const provisional = lost.reduce((n, d) => n + d.provisional, 0)
  const leaves = base.tree.list(leafList).filter((r) => r.keys.name === name)
  const configured = ['status', 'reason'].map((leaf) => row.values.get(`configuration/state/${leaf}`)).filter(Boolean).join(': ')
  return (
    <section class="details" aria-label="Selected switch">
      <h2>{name}</h2>
      <dl class="values">
        <Value name="state" value={`${String(row.values.get('state/connection') ?? '')}${health === 'ok' ? '' : `, ${health}`}`} />
        {why && <Value name="remark" value={why} />}
        <Value name="received" value={loadText(traffic?.received ?? NaN, counted)} />
        <Value name="sent" value={loadText(traffic?.sent ?? NaN, counted)} />
        <Value name="lost packets on its links" value={lossText({ lost: losses, provisional, counted })} />
        <Value name="epochs lost" value={String(row.values.get('state/epochs-lost') ?? '')} />
        {configured && <Value name="configuration" value={configured} />}
      </dl>
      {(['received', 'sent'] as const).map((way) => {
        const samples = history.get(`${name} ${way}`)
        return samples && <Chart key={way} title={`traffic ${way} by all ports`} samples={samples} version={version} format={rate} />
      })}
      {!traffic && !counted && <p class="dim">Its ports are not counted: the collector has no gNMI session with it.</p>}
      {leaves.length > 0 && (
        <>
          <h3>Configuration over gNMI</h3>
          <Table label="Configuration" rows={leaves} columns={columnsOf(find(schema, leafList) as SchemaNode)} id={(r) => r.id} height="12rem" />
        </>
      )}
      {live && lists.map((l) => <SwitchList key={l.path} live={live} list={l} />)}
      <details>
        <summary>The session of the collector</summary>
        <Details row={row} tree={base.tree} node={find(schema, '/collector/devices/device') as SchemaNode} />
      </details>
    </section>
  )
}

function SwitchList({ live, list }: { live: Live; list: SchemaNode }) {
  const rows = useRows(live, list.path)
  const shown = useMemo(() => columnsOf(list).filter((c) => c.title !== switchKey(list)), [list])
  const [selected, select] = useState('')
  if (!rows.length) return null
  const row = rows.find((r) => r.id === selected)
  return (
    <>
      <h3>
        <a href={href('plugin', [above(list)[0]!.name], { list: list.path })}>{list.path}</a>
      </h3>
      <Table label={list.path} rows={rows} columns={shown} id={(r) => r.id} selected={selected} onSelect={(r) => select(r.id)} height="12rem" />
      {row && <Details key={row.id} row={row} tree={live.tree} node={list} />}
    </>
  )
}

// LinkDetails is what is known of the selected link, in both directions.
function LinkDetails({ of, history, version }: { of: Edge; history: Map<string, Sample[]>; version: number }) {
  return (
    <section class="details" aria-label="Selected link">
      <h2>{of.id}</h2>
      <dl class="values">
        <Value name="source" value={of.source} />
        {of.directions.flatMap((d) => {
          const way = `${d.from} → ${d.to}`
          return [
            <Value key={d.id} name={way} value={`${loadText(d.load, d.counted)} ${usage(d) && `(${usage(d)} of ${rate(d.speed)})`}`} />,
            <Value key={d.id + 'l'} name={`${way}, lost packets`} value={lossText(d)} />,
          ]
        })}
      </dl>
      {of.directions.map((d) => {
        const samples = history.get(d.id) ?? []
        return samples.length ? <Chart key={d.id} title={`load ${d.from} → ${d.to}`} samples={samples} version={version} format={rate} /> : null
      })}
      <p>
        {of.ends.map((p) => (
          <a key={p} href={href('topology', [], { select: node(p) })}>
            {node(p)}{' '}
          </a>
        ))}
      </p>
    </section>
  )
}

const Value = ({ name, value }: { name: string; value: string }) => (
  <div>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
)

interface GraphProps {
  switches: Switch[]
  edges: Edge[]
  alerted: Set<string> // subjects of active alerts
  selected: string
  onSelect: (id: string) => void
}

function Graph({ switches, edges, alerted, selected, onSelect }: GraphProps) {
  const at = useRef<HTMLDivElement>(null)
  const graph = useRef<Core>(undefined)
  const select = useRef(onSelect)
  select.current = onSelect
  const [problem, setProblem] = useState('')
  const shape = switches.map((s) => s.name).join() + '|' + edges.map((e) => e.id).join()

  useEffect(() => {
    let closed = false
    let unwatch = () => {}
    void import('cytoscape').then(({ default: cytoscape }) => {
      if (closed || !at.current) return
      setProblem('')
      const names = switches.map((s) => s.name)
      const linked = edges.filter((e) => e.ends.every((p) => names.includes(node(p))))
      const position = places(names, linked.map((e) => [node(e.ends[0]), node(e.ends[1])]))
      const elements: ElementDefinition[] = [
        ...names.map((name) => ({ data: { id: name, select: name }, position: position.get(name)! })),
        ...linked.map((e) => ({ data: { id: e.id, select: e.directions[0]!.id, source: node(e.ends[0]), target: node(e.ends[1]) } })),
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
          { selector: 'edge.on', style: { 'underlay-color': dark(), 'underlay-padding': 4, 'underlay-opacity': 0.35 } },
        ],
      })
      g.on('tap', 'node, edge', (e) => select.current((e.target as { data(key: string): string }).data('select')))
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
      paint(g, switches, edges, alerted, selected)
    }).catch((e: unknown) => setProblem(String(e)))
    return () => {
      closed = true
      unwatch()
      graph.current?.destroy()
      graph.current = undefined
    }
  }, [shape])

  useEffect(() => {
    if (graph.current) paint(graph.current, switches, edges, alerted, selected)
  }, [switches, edges, alerted, selected])

  return (
    <>
      {problem && <p class="notice lost">The map cannot be drawn ({problem}); the tables below have its values. Open the page again.</p>}
      <div
        class="graph"
        ref={at}
        role="img"
        aria-label={`${switches.length} switches and ${edges.length} links; the tables below have the same values`}
      />
    </>
  )
}

// paint applies states, loads and losses to the drawn elements.
function paint(g: Core, switches: Switch[], edges: Edge[], alerted: Set<string>, selected: string): void {
  g.batch(() => {
    for (const s of switches) {
      const n = g.getElementById(s.name)
      n.data('color', healthColor[s.health])
      n.toggleClass('on', s.name === selected)
    }
    for (const e of edges) {
      const x = g.getElementById(e.id)
      x.data(look(e))
      x.toggleClass('lossy', e.directions.some((d) => d.lost > 0 || alerted.has(`${d.from}~${d.to}`)))
      x.toggleClass('on', e.directions.some((d) => d.id === selected))
    }
  })
}
