// SPDX-License-Identifier: Apache-2.0

// Flow search: what every plugin knows of one flow, at every switch.

import { useMemo, useState } from 'preact/hooks'
import { go, href, State, useApp, useLive, useRows } from './app'
import { Details } from './details'
import type { Live } from './live'
import { columnsOf } from './plugin'
import { tables, withKeys, type SchemaNode } from './schema'
import { Table } from './table'

// flowLists returns the lists of plugins with a key named flow.
export function flowLists(schema: SchemaNode): SchemaNode[] {
  return (schema.children ?? [])
    .filter((n) => n.plugin)
    .flatMap((n) => tables(n).lists)
    .filter((l) => l.keys?.includes('flow') && !l.tags?.some((t) => t.includes('/')))
}

const mostPaths = 1500

// pathsOf returns the paths of a flow in a list. A path with all keys makes the flow watched, so
// that the plugin reports it also if it is in no list; where another key names a switch or has
// certain values, there is a path for each, else any value matches.
export function pathsOf(list: SchemaNode, flow: string, switches: string[]): string[] {
  let out: [string, string][][] = [[]]
  for (const key of list.keys!) {
    const leaf = list.children?.find((c) => c.name === key)
    const values = key === 'flow' ? [flow] : list.name !== 'flow' ? ['*'] : key === 'device' ? ['network', ...switches] : (leaf?.values ?? ['*'])
    out = out.flatMap((keys) => values.map((v): [string, string][] => [...keys, [key, v]]))
  }
  return out.map((keys) => withKeys(list.path, keys.filter(([, v]) => v !== '*')))
}

export function Flow({ flow }: { flow: string }) {
  const { schema, base } = useApp()
  const lists = useMemo(() => flowLists(schema), [schema])
  const switches = base.tree.list('/collector/devices/device').map((r) => r.keys.name!)
  const names = switches.join()
  const all = useMemo(() => (flow ? lists.flatMap((l) => pathsOf(l, flow, switches)) : []), [flow, lists, names])
  const paths = useMemo(() => all.slice(0, mostPaths), [all])
  const live = useLive(paths.length ? { paths } : null)
  return (
    <>
      <h1>
        Flows <small>one flow at every switch</small>
      </h1>
      <form
        class="search"
        onSubmit={(e) => {
          e.preventDefault()
          go(href('flow', [], { key: String(new FormData(e.currentTarget).get('flow')).trim() }))
        }}
      >
        <input type="search" name="flow" key={flow} defaultValue={flow} aria-label="Flow" placeholder="10.0.0.1,10.0.1.2,tcp,40000,80 or 10.0.0.1" />
        <button>search</button>
      </form>
      <p class="dim">
        A flow is written as in the lists of the plugins: source, destination, protocol and ports, or one address where a plugin
        counts by it. While this page is open the flow is watched, and plugins that can compute any flow report it from the next
        epoch on.
      </p>
      {!lists.length && <p class="notice refused">No running plugin has a list of flows.</p>}
      {all.length > mostPaths && (
        <p class="notice lost">
          The flow has {all.length} paths, of which the first {mostPaths} are watched. Open one by its path instead:{' '}
          <a href={href('paths', [], { path: all.at(-1)! })}>{all.at(-1)}</a>
        </p>
      )}
      {flow && <State live={live} />}
      {live && <Found key={flow} live={live} lists={lists} flow={flow} />}
    </>
  )
}

function Found({ live, lists, flow }: { live: Live; lists: SchemaNode[]; flow: string }) {
  const rows = [...live.tree.rows.values()]
  const path = rows.map((r) => String(r.values.get('state/path') ?? '')).find(Boolean)
  const lost = rows.reduce((n, r) => n + Number(r.values.get('state/lost-packets') ?? 0), 0)
  return (
    <>
      {path && (
        <ol class="hops" aria-label="Path of the flow">
          {path
            .split(/\s+/)
            .filter((s) => s !== '->')
            .map((s, i) => (
              <li key={i}>
                <a href={href('topology', [], { select: s })}>{s}</a>
              </li>
            ))}
        </ol>
      )}
      {lost > 0 && <p class="notice lost">{lost} packets of the flow were lost in the newest epoch.</p>}
      {live.status === 'live' && !rows.length && (
        <p class="notice">
          No plugin has reported {flow} yet. A flow without packets, or one that a sketch cannot compute, has no row.
        </p>
      )}
      {lists.map((l) => (
        <FlowList key={l.path} live={live} list={l} />
      ))}
    </>
  )
}

function FlowList({ live, list }: { live: Live; list: SchemaNode }) {
  const rows = useRows(live, list.path)
  const shown = useMemo(() => columnsOf(list).filter((c) => c.title !== 'flow'), [list])
  const [selected, select] = useState('')
  if (!rows.length) return null
  const row = rows.find((r) => r.id === selected)
  return (
    <section>
      <h2>{list.path}</h2>
      <p class="dim">{list.parent?.description ?? list.description}</p>
      <Table
        label={list.path}
        rows={rows}
        columns={shown}
        id={(r) => r.id}
        selected={selected}
        onSelect={(r) => select(r.id)}
        height="18rem"
      />
      {row && <Details key={row.id} row={row} tree={live.tree} node={list} />}
    </section>
  )
}
