// SPDX-License-Identifier: Apache-2.0

// The network: switches by state, links by load and loss.

import type { Core, ElementDefinition } from 'cytoscape'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { alertLists } from './alerts'
import { go, href, useApp, useLive, useRows } from './app'
import { Chart } from './chart'
import { Details, Panel } from './details'
import { count, duration, percent, rate } from './format'
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

// End is an end of a link: a port of a switch, or a host.
interface End {
  node: string
  text: string // "leaf1/3", or the name of a host
  interface: string // of the port; empty if the switch reports none
}

// Direction is what one end of a link sends.
interface Direction {
  id: string // the name of the link in /topology: "leaf1/3~spine1/1"
  from: End
  to: End
  counted: boolean // its port has counters, of which there may be one sample so far
  load: number // bits per second; NaN if nothing counts it
  speed: number // of the link in bits per second; NaN if unknown
  lost: number // packets in the newest epoch or sample, at least; NaN if nothing counts them
  provisional: number // packets that have not arrived, and may be late
  time: number // of the newest counter
}

interface Edge {
  id: string
  ends: [End, End]
  source: string // what reports the link
  directions: Direction[]
}

// Traffic is what the ports of a switch receive and send, in bits per second.
interface Traffic {
  received: number
  sent: number
  time: number
}

export function healthOf(row: Row, missing: Set<string>): [Health, string] {
  const state = String(row.values.get('state/connection') ?? 'DOWN')
  const error = String(row.values.get('state/last-error') ?? '')
  if (state === 'BACKUP') return ['backup', 'another controller is primary']
  if (state !== 'READY') return ['down', `${state}: ${error}`]
  if (missing.has(row.keys.node!)) return ['warning', 'not in the newest epoch: ' + (error || 'its read-out was late')]
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
    nodes: Row[],
    results: Row[],
    private epochSeconds: number,
  ) {
    const switches = new Map(nodes.map((n) => [String(n.values.get('state/target') ?? ''), n.keys.name!]))
    for (const row of interfaces?.tree.list('/interfaces/interface') ?? []) {
      const name = switches.get(row.target)
      if (name) this.ports.set(`${name} ${row.keys.name}`, row)
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

  // direction takes a row of /topology/links.
  direction(link: Row): Direction {
    const d: Direction = {
      id: link.keys.name!,
      from: endOf(link, 'source'),
      to: endOf(link, 'destination'),
      counted: false,
      load: NaN,
      speed: Number(link.values.get('state/speed') ?? NaN),
      lost: NaN,
      provisional: 0,
      time: 0,
    }
    const port = this.ports.get(`${d.from.node} ${d.from.interface}`)
    if (port) {
      d.counted = port.values.has('state/counters/out-octets')
      d.load = this.rate(port, 'out-octets')
      d.time = port.time
      for (const leaf of ['out-discards', 'out-errors']) {
        const [n] = this.change(port, leaf)
        if (!Number.isNaN(n)) d.lost = (Number.isNaN(d.lost) ? 0 : d.lost) + n
      }
    }
    const result = this.results.get(d.id)
    if (!result) return d
    if (Number.isNaN(d.load)) {
      d.load = (Number(result.values.get('state/bytes')) * 8) / this.epochSeconds
      d.time = result.time
    }
    // What is an estimate may be late, and the upper bound of a loss may be far off.
    const lost = Number(result.values.get('state/lost-packets-low') ?? NaN)
    if (result.values.get('state/quality') === 'ESTIMATE' && lost > 0) d.provisional = lost
    else if (!Number.isNaN(lost)) d.lost = Math.max(Number.isNaN(d.lost) ? 0 : d.lost, lost)
    return d
  }

  // traffic returns the sums over the ports of each switch.
  traffic(): Map<string, Traffic> {
    const out = new Map<string, Traffic>()
    for (const [id, row] of this.ports) {
      const name = id.slice(0, id.indexOf(' '))
      const t = out.get(name) ?? { received: 0, sent: 0, time: 0 }
      const received = this.rate(row, 'in-octets')
      const sent = this.rate(row, 'out-octets')
      if (Number.isNaN(received + sent)) continue
      out.set(name, { received: t.received + received, sent: t.sent + sent, time: Math.max(t.time, row.time) })
    }
    return out
  }
}

// endOf returns an end of a row of /topology/links.
function endOf(link: Row, end: 'source' | 'destination'): End {
  const value = (leaf: string) => String(link.values.get(`state/${end}/${leaf}`) ?? '')
  const port = value('port-number')
  return { node: value('node'), text: value('node') + (port && '/' + port), interface: value('interface') }
}

// places returns a position for each node: in rows by the distance from the hosts, or from the
// nodes with the fewest links if there is no host. A single row of switches is a circle, with the
// hosts around it.
export function places(names: string[], hosts: Set<string>, pairs: [string, string][]): Map<string, { x: number; y: number }> {
  const near = new Map(names.map((n) => [n, new Set<string>()]))
  for (const [a, b] of pairs) {
    near.get(a)?.add(b)
    near.get(b)?.add(a)
  }
  const fewest = Math.min(...names.map((n) => near.get(n)!.size))
  const lowest = hosts.size ? names.filter((n) => hosts.has(n)) : names.filter((n) => near.get(n)!.size === fewest)
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
  const circle = (row: string[], radius: number) =>
    row.forEach((n, j) => {
      const angle = (2 * Math.PI * j) / row.length
      out.set(n, { x: Math.sin(angle) * radius, y: -Math.cos(angle) * radius })
    })
  const ring = rows.findIndex((row) => row?.some((n) => !hosts.has(n)))
  if (ring >= 0 && ring === rows.length - 1 && ring <= 1) {
    const at = new Map(rows[ring]!.map((n, j) => [n, j]))
    const place = (host: string) => Math.min(...[...near.get(host)!].map((n) => at.get(n) ?? 0))
    circle(rows[ring]!, rows[ring]!.length * 25)
    if (ring) circle([...rows[0]!].sort((a, b) => place(a) - place(b)), widest * 25 + 70)
    return out
  }
  rows.forEach((row, i) =>
    row?.forEach((n, j) => out.set(n, { x: ((j + 0.5) / row.length - 0.5) * widest * 90, y: -i * Math.max(120, widest * 12) })),
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

// sourceOf says what reports a link. An end whose neighbor is another one says more than one whose
// neighbor is right.
function sourceOf(ends: (Row | undefined)[]): string {
  const statusOf = (row: Row) => String(row.values.get('state/status') ?? '')
  const rows = ends.filter((row) => row !== undefined)
  const row = rows.find((r) => /^(MISSING|MISMATCH)$/.test(statusOf(r))) ?? rows[0]
  if (!row) return 'configuration' // a link to a host
  const status = statusOf(row)
  return (sources[status] ?? (() => status))(String(row.values.get('state/peer-discovered') ?? ''))
}

function edgesOf(base: Live, meters: Meters): Edge[] {
  const edges = new Map<string, Edge>()
  const compared = new Map(base.tree.list('/collector/links/link').map((row) => [row.keys.port!, row]))
  for (const row of base.tree.list('/topology/links/link')) {
    const d = meters.direction(row)
    const id = [d.from.text, d.to.text].sort().join(' – ')
    const e = edges.get(id)
    if (e) e.directions.push(d)
    else edges.set(id, { id, ends: [d.from, d.to], source: sourceOf([compared.get(d.from.text), compared.get(d.to.text)]), directions: [d] })
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
    text: (s) => (s.row.values.has('state/readout-time') ? duration(Number(s.row.values.get('state/readout-time'))) : ''),
    number: (s) => Number(s.row.values.get('state/readout-time') ?? NaN),
  },
  {
    title: 'epochs lost',
    right: true,
    text: (s) => (s.row.values.has('state/epochs-lost') ? count(Number(s.row.values.get('state/epochs-lost'))) : ''),
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

// endText names an end with its interface: "leaf1/3 (Ethernet3)".
const endText = (e: End): string => e.text + (e.interface && ` (${e.interface})`)

const usage = (d: Direction): string => (Number.isNaN(d.load / d.speed) ? '' : percent(d.load / d.speed))

const loadText = (load: number, counted: boolean): string => (!Number.isNaN(load) ? rate(load) : counted ? 'with the next sample' : 'not counted')

const linkColumns: TableColumn<EdgeRow>[] = [
  { title: 'from', key: true, text: (d) => endText(d.from) },
  { title: 'to', key: true, text: (d) => endText(d.to) },
  { title: 'load', right: true, text: (d) => loadText(d.load, d.counted), number: (d) => d.load },
  { title: 'of the speed', right: true, text: usage, number: (d) => d.load / d.speed },
  { title: 'lost packets', right: true, text: lossText, number: (d) => d.lost },
  { title: 'source', text: (d) => d.source },
]

export function Topology({ selected }: { selected: string }) {
  const { base, schema } = useApp()
  const has = (path: string) => find(schema, path) !== undefined
  const interfaces = useLive(
    has('/interfaces/interface/state/counters')
      ? {
          target: '*',
          paths: ['/interfaces/interface/state/counters'],
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
      return { name: row.keys.node!, row, health, why }
    })
  }, [base.tree.version])
  const nodes = useMemo(() => base.tree.list('/topology/nodes/node'), [base.tree.version])
  const hosts = useMemo(() => nodes.filter((n) => n.values.get('state/type') === 'HOST').map((n) => n.keys.name!), [nodes])
  const [edges, traffic] = useMemo(() => {
    const meters = new Meters(interfaces, nodes, results?.tree.list('/omnimon/links/link') ?? [], length)
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
          .map((r) => r.keys.location ?? ''),
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
          {switches.length} switches, {hosts.length > 0 && `${hosts.length} hosts, `}
          {edges.length} links
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
            % of the link's speed
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
      <Graph switches={switches} hosts={hosts} edges={edges} alerted={alerted} selected={selected} onSelect={choose} />
      {chosen && (
        <SwitchDetails
          key={chosen.name}
          of={chosen}
          traffic={traffic.get(chosen.name)}
          directions={directions.filter((d) => d.from.node === chosen.name || d.to.node === chosen.name)}
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
        empty="No link: neither the configuration nor LLDP has one."
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
  const lost = directions.filter((d) => d.from.node === name)
  const sum = (of: number[]) => (of.every(Number.isNaN) ? NaN : of.reduce((a, b) => a + (Number.isNaN(b) ? 0 : b), 0))
  const counted = directions.some((d) => d.from.node === name && d.counted)
  const losses = sum(lost.map((d) => d.lost))
  const provisional = lost.reduce((n, d) => n + d.provisional, 0)
  const leaves = base.tree.list(leafList).filter((r) => r.keys.node === name)
  const configured = ['status', 'reason'].map((leaf) => row.values.get(`configuration/state/${leaf}`)).filter(Boolean).join(': ')
  return (
    <Panel label="Selected switch">
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
    </Panel>
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
    <Panel label="Selected link">
      <h2>{of.id}</h2>
      <dl class="values">
        <Value name="source" value={of.source} />
        {of.directions.flatMap((d) => {
          const way = `${endText(d.from)} → ${endText(d.to)}`
          return [
            <Value key={d.id} name={way} value={`${loadText(d.load, d.counted)} ${usage(d) && `(${usage(d)} of ${rate(d.speed)})`}`} />,
            <Value key={d.id + 'l'} name={`${way}, lost packets`} value={lossText(d)} />,
          ]
        })}
      </dl>
      {of.directions.map((d) => {
        const samples = history.get(d.id) ?? []
        return samples.length ? <Chart key={d.id} title={`load ${d.from.text} → ${d.to.text}`} samples={samples} version={version} format={rate} /> : null
      })}
      <p>
        {of.ends.map((e) => (
          <a key={e.node} href={href('topology', [], { select: e.node })}>
            {e.node}{' '}
          </a>
        ))}
      </p>
    </Panel>
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
  hosts: string[]
  edges: Edge[]
  alerted: Set<string> // subjects of active alerts
  selected: string
  onSelect: (id: string) => void
}

function Graph({ switches, hosts, edges, alerted, selected, onSelect }: GraphProps) {
  const at = useRef<HTMLDivElement>(null)
  const graph = useRef<Core>(undefined)
  const select = useRef(onSelect)
  select.current = onSelect
  const [problem, setProblem] = useState('')
  const shape = [...switches.map((s) => s.name), ...hosts].join() + '|' + edges.map((e) => e.id).join()

  useEffect(() => {
    let closed = false
    let unwatch = () => {}
    void import('cytoscape').then(({ default: cytoscape }) => {
      if (closed || !at.current) return
      setProblem('')
      const names = [...switches.map((s) => s.name), ...hosts]
      const known = new Set(names)
      const linked = edges.filter((e) => e.ends.every((p) => known.has(p.node)))
      const position = places(names, new Set(hosts), linked.map((e) => [e.ends[0].node, e.ends[1].node]))
      const elements: ElementDefinition[] = [
        ...switches.map(({ name }) => ({ data: { id: name, select: name }, position: position.get(name)! })),
        // A host is selected with its link.
        ...hosts.map((name) => ({
          data: { id: name, select: edges.flatMap((e) => e.directions).find((d) => d.from.node === name)?.id ?? name },
          classes: 'host',
          position: position.get(name)!,
        })),
        ...linked.map((e) => ({ data: { id: e.id, select: e.directions[0]!.id, source: e.ends[0].node, target: e.ends[1].node } })),
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
          { selector: 'node.host', style: { width: 12, height: 12, shape: 'ellipse', 'font-size': 9, 'background-color': unknown } },
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
        aria-label={`${switches.length} switches, ${hosts.length} hosts and ${edges.length} links; the tables below have the same values`}
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
      x.toggleClass('lossy', e.directions.some((d) => d.lost > 0 || alerted.has(d.id)))
      x.toggleClass('on', e.directions.some((d) => d.id === selected))
    }
  })
}
