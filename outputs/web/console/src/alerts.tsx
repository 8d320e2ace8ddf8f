// SPDX-License-Identifier: Apache-2.0

// Alerts of the plugins, and what is wrong with the collector itself.

import { useMemo } from 'preact/hooks'
import { useApp, type App } from './app'
import { clock, epochTime } from './format'
import { listOf, tables, type SchemaNode } from './schema'
import { Table, type TableColumn } from './table'
import { healthOf, missingOf } from './topology'

interface Alert {
  id: string
  source: string
  severity: string
  active: boolean
  subject: string
  text: string
  since: string
  time: number
}

// own returns what the collector's state reports.
function own({ base }: App): Alert[] {
  const out: Alert[] = []
  const add = (severity: string, subject: string, text: string, time: number) =>
    out.push({ id: subject + text, source: 'collector', severity, active: true, subject, text, since: '', time })
  const tree = base.tree
  const epoch = tree.one('/collector/epoch/state')
  const value = (leaf: string) => String(epoch?.values.get(leaf) ?? '')
  if (epoch && value('status') !== 'COMPLETE')
    add(value('status') === 'LOST' ? 'critical' : 'warning', `epoch of ${epochTime(Number(value('number')))}`, `${value('status')}; missing: ${value('missing') || 'all'}`, epoch.time)
  if (epoch && value('accuracy-warnings')) add('warning', `epoch of ${epochTime(Number(value('number')))}`, value('accuracy-warnings'), epoch.time)
  for (const row of tree.list('/collector/devices/device')) {
    const [health, why] = healthOf(row, missingOf(epoch))
    if (health === 'down' || health === 'warning') add(health === 'down' ? 'critical' : 'warning', `switch ${row.keys.node}`, why, row.time)
  }
  const check = (list: string, what: string, leaf: string, bad: (v: string) => string) => {
    for (const row of tree.list(list)) {
      const v = row.values.get(leaf)
      const severity = v === undefined ? '' : bad(String(v))
      if (severity) add(severity, `${what} ${Object.values(row.keys).at(-1)}`, [String(v), String(row.values.get('state/last-error') ?? '')].filter(Boolean).join(': '), row.time)
    }
  }
  check('/collector/devices/device', 'configuration of switch', 'configuration/state/status', (v) => (/^(DIFFERS|REFUSED|ENFORCEMENT_ENDED)$/.test(v) ? 'warning' : ''))
  check('/collector/plugins/plugin', 'plugin', 'state/status', (v) => (v === 'FAILED' || v === 'BACKOFF' ? 'critical' : ''))
  check('/collector/outputs/output', 'output', 'state/status', (v) => (v === 'UP' ? '' : 'critical'))
  check('/collector/hosts/host', 'host', 'state/connected', (v) => (v === 'false' ? 'critical' : ''))
  check('/collector/links/link', 'link', 'state/status', (v) => (v === 'MISMATCH' ? 'critical' : v === 'MISSING' ? 'warning' : ''))
  check('/collector/certificates/certificate', 'certificate', 'state/status', (v) => (v === 'VALID' ? '' : v === 'EXPIRED' ? 'critical' : 'warning'))
  const reload = tree.one('/collector/reload/state')
  const status = String(reload?.values.get('status') ?? '')
  if (status === 'REFUSED' || status === 'HELD') add('warning', 'configuration', `${status}: ${String(reload!.values.get('reason') ?? '')}`, reload!.time)
  return out
}

// alertLists returns the lists of plugins that have alerts: by their name, and leaves text and
// active.
export function alertLists(schema: SchemaNode): SchemaNode[] {
  return (schema.children ?? [])
    .filter((n) => n.plugin)
    .flatMap((n) => tables(n).lists)
    .filter((l) => l.name === 'alert' && l.children?.some((c) => c.children?.some((x) => x.name === 'text')))
}

// all returns the collector's own alerts and those of the plugins, active ones first.
function all(app: App): Alert[] {
  const out = own(app)
  for (const list of alertLists(app.schema))
    for (const row of app.base.tree.list(list.path)) {
      const get = (leaf: string) => String(row.values.get('state/' + leaf) ?? '')
      out.push({
        id: row.id,
        source: listOf(row.path).split('/')[1]!,
        severity: get('severity'),
        active: get('active') === 'true',
        subject: [row.keys.location, row.keys.subject, row.keys.kind].filter(Boolean).join(' '),
        text: get('text'),
        since: get('since-epoch'),
        time: row.time,
      })
    }
  return out.sort((a, b) => Number(b.active) - Number(a.active) || b.time - a.time)
}

export const countAlerts = (app: App): number => all(app).filter((a) => a.active).length

const columns: TableColumn<Alert>[] = [
  { title: 'state', key: true, text: (a) => (a.active ? 'active' : 'over') },
  { title: 'severity', key: true, text: (a) => a.severity },
  { title: 'source', key: true, text: (a) => a.source },
  { title: 'subject', key: true, text: (a) => a.subject },
  { title: 'text', wide: true, text: (a) => a.text },
  { title: 'since epoch', right: true, text: (a) => a.since && epochTime(Number(a.since)), tip: (a) => a.since },
  { title: 'time', text: (a) => clock(a.time) },
]

export function Alerts() {
  const app = useApp()
  const rows = useMemo(() => all(app), [app.base.tree.version, app.schema])
  const active = rows.filter((a) => a.active).length
  return (
    <>
      <h1>
        Alerts <small>{active} active</small>
      </h1>
      <Table label="Alerts" rows={rows} columns={columns} id={(a) => a.id} empty="No alerts: every switch, plugin and output works, and no plugin reports one." />
    </>
  )
}
