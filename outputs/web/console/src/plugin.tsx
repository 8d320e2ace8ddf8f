// SPDX-License-Identifier: Apache-2.0

// The page of a plugin, made from its YANG module: its containers as values, its lists as tables.

import { useMemo, useState } from 'preact/hooks'
import { go, href, State, useApp, useLive, useRows } from './app'
import { Details, unit } from './details'
import { count, raw, text } from './format'
import type { Live, Row } from './live'
import { above, columns, flowKeys, isNumber, keyLeaf, tables, type SchemaNode } from './schema'
import { Table, type TableColumn } from './table'

// flowFields are parts of a flow, which is a key of the row.
const flowFields = /^(source-address|destination-address|protocol|source-port|destination-port)$/

// columnsOf returns the columns of a list's table: its keys, those of enclosing lists included, and
// its leaves but for parts of a flow that is a key, the epoch last.
export function columnsOf(list: SchemaNode): TableColumn<Row>[] {
  const keys = above(list).flatMap((n) =>
    (n.keys ?? []).map((k): TableColumn<Row> => {
      const leaf = keyLeaf(n, k)
      return {
        title: k,
        hint: leaf?.description,
        key: true,
        wide: /^(flow|text|key)$/.test(k),
        text: (r) => text(r.keys[k], leaf),
        tip: (r) => r.keys[k] ?? '',
        number: leaf && isNumber(leaf) ? (r) => Number(r.keys[k]) : undefined,
      }
    }),
  )
  const titles = new Set(keys.map((k) => k.title))
  const leaves = columns(list)
    .filter((c) => !titles.has(c.title) && !(titles.has('flow') && flowFields.test(c.node.name)))
    .sort((a, b) => Number(a.title === 'epoch') - Number(b.title === 'epoch'))
    .map(({ leaf, title, node }): TableColumn<Row> => {
      const number = isNumber(node)
      return {
        title: unit(node) && !title.includes(unit(node)) ? `${title} (${unit(node)})` : title,
        hint: node.description,
        right: number,
        wide: /^(text|path|problem|tuple|plan|last-error|previous-path)$/.test(node.name),
        text: (r) => text(r.values.get(leaf), node),
        tip: (r) => raw(r.values.get(leaf)),
        number: number ? (r) => (r.values.has(leaf) ? Number(r.values.get(leaf)) : NaN) : undefined,
      }
    })
  return [...keys, ...leaves]
}

// inCommon returns how many elements two paths begin with.
function inCommon(a: string, b: string): number {
  const [x, y] = [a.split('/'), b.split('/')]
  const n = x.findIndex((e, i) => e !== y[i])
  return n < 0 ? x.length : n
}

// Omitted says that a list has a part of its entries. The container of the plugin that is nearest to
// the list counts all of them in a leaf that has the name of the list's container.
function Omitted({ top, list, containers, live, rows }: { top: SchemaNode; list: SchemaNode; containers: SchemaNode[]; live?: Live; rows: number }) {
  const { info } = useApp()
  const name = list.parent!.name
  const [nearest] = containers
    .filter((c) => c.children!.some((l) => l.name === name))
    .sort((a, b) => inCommon(b.path, list.path) - inCommon(a.path, list.path))
  const all = Number((nearest && live?.tree.one(nearest.path)?.values.get(name)) ?? NaN)
  if (!(all > rows) || live?.status !== 'live') return null
  const [key] = flowKeys(list)
  return (
    <p class="notice">
      {count(rows)} of {count(all)} {name} are in this list, which the settings of the plugin bound.{' '}
      {key && info.watchable.includes(list.path) && (
        <>
          Any other has its values while it is watched: <a href={href('flow')}>search it by its key</a>.{' '}
        </>
      )}
      <a href={href('paths', [], { path: `/collector/plugins/plugin[name=${top.name}]` })}>The plugin</a>
    </p>
  )
}

export function Plugin({ name, list: wanted }: { name: string; list: string }) {
  const { schema, base } = useApp()
  const top = schema.children?.find((n) => n.name === name && n.plugin)
  const { lists, containers } = useMemo(() => (top ? tables(top) : { lists: [], containers: [] }), [top])
  const list = lists.find((l) => l.path === wanted) ?? lists.find((l) => l.name === 'node-summary') ?? lists.find((l) => l.name === 'flow') ?? lists[0]
  const live = useLive(top ? { paths: [...(list ? [list.path] : []), ...containers.map((c) => c.path)] } : null)
  const rows = useRows(live, list?.path ?? '')
  const shown = useMemo(() => (list ? columnsOf(list) : []), [list])
  const [selected, select] = useState('')
  if (!top)
    return (
      <>
        <h1>{name}</h1>
        <p class="notice refused">
          No running plugin has a module with the node {name}. Plugins are listed under{' '}
          <a href={href('paths', [], { path: '/collector/plugins' })}>/collector/plugins</a>.
        </p>
      </>
    )
  const row = rows.find((r) => r.id === selected)
  const process = base.tree.list('/collector/plugins/plugin').find((r) => r.keys.name === name)
  return (
    <>
      <h1>
        {name} <small>{top.description}</small>
      </h1>
      {process && process.values.get('state/status') !== 'RUNNING' && (
        <p class="notice lost">
          The plugin is {String(process.values.get('state/status'))}: {String(process.values.get('state/last-error') ?? '')}
        </p>
      )}
      <State live={live} />
      {containers.map((c) => (
        <Container key={c.path} node={c} row={live?.tree.one(c.path)} />
      ))}
      <nav class="tabs" aria-label="Lists">
        {lists.map((l) => (
          <button
            key={l.path}
            aria-pressed={l === list}
            title={l.description}
            onClick={() => {
              select('')
              go(href('plugin', [name], { list: l.path }), true)
            }}
          >
            {l.path.slice(top.path.length + 1).replace(/[^/]+\/(?=[^/]+$)/, '')}
          </button>
        ))}
      </nav>
      {wanted && list?.path !== wanted && (
        <p class="notice refused">
          {name} has no list {wanted}; this is {list?.path ?? 'its page'}.
        </p>
      )}
      {!list && !containers.length && <p class="notice">The module of the plugin has no list and no values.</p>}
      {list && (
        <>
          <p class="dim">{list.parent?.description ?? list.description}</p>
          <Omitted top={top} list={list} containers={containers} live={live} rows={rows.length} />
          <Table
            key={list.path}
            label={list.path}
            rows={rows}
            columns={shown}
            id={(r) => r.id}
            selected={selected}
            onSelect={(r) => select(r.id)}
            empty={live?.status === 'live' ? 'The plugin has published no rows of this list.' : ''}
          />
          {row && live && <Details key={row.id} row={row} tree={live.tree} node={list} />}
        </>
      )}
    </>
  )
}

// Container shows the leaves of a container.
export function Container({ node, row }: { node: SchemaNode; row?: Row }) {
  if (!row) return null
  return (
    <dl class="values cards" aria-label={node.path}>
      {node.children!.map(
        (c) =>
          c.kind === 'leaf' &&
          row.values.has(c.name) && (
            <div key={c.name} title={c.description}>
              <dt>{c.name}</dt>
              <dd title={raw(row.values.get(c.name))}>
                {text(row.values.get(c.name), c)} <small>{unit(c)}</small>
              </dd>
            </div>
          ),
      )}
    </dl>
  )
}
