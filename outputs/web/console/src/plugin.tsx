// SPDX-License-Identifier: Apache-2.0

// The page of a plugin, made from its YANG module: its containers as values, its lists as tables.

import { useMemo, useState } from 'preact/hooks'
import { go, href, State, useApp, useLive, useRows } from './app'
import { Details, unit } from './details'
import { text } from './format'
import type { Row } from './live'
import { columns, isNumber, tables, type SchemaNode } from './schema'
import { Table, type TableColumn } from './table'

// columnsOf returns the columns of a list's table: its keys, those of enclosing lists included, and
// its leaves.
export function columnsOf(list: SchemaNode): TableColumn<Row>[] {
  const keys: TableColumn<Row>[] = []
  for (let n: SchemaNode | undefined = list; n; n = n.parent)
    if (n.kind === 'list')
      keys.unshift(
        ...n.keys!.map((k) => ({
          title: k,
          hint: n!.children?.find((c) => c.name === k)?.description,
          wide: /^(flow|text|key)$/.test(k),
          text: (r: Row) => r.keys[k] ?? '',
        })),
      )
  const titles = new Set(keys.map((k) => k.title))
  const leaves = columns(list)
    .filter((c) => !titles.has(c.title))
    .map(({ leaf, title, node }): TableColumn<Row> => {
      const number = isNumber(node)
      return {
        title: unit(node) && !title.includes(unit(node)) ? `${title} (${unit(node)})` : title,
        hint: node.description,
        right: number,
        wide: /^(text|path|problem|tuple|plan|last-error|previous-path)$/.test(node.name),
        text: (r) => text(r.values.get(leaf), node),
        number: number ? (r) => (r.values.has(leaf) ? Number(r.values.get(leaf)) : NaN) : undefined,
      }
    })
  return [...keys, ...leaves]
}

export function Plugin({ name, list: wanted }: { name: string; list: string }) {
  const { schema, base } = useApp()
  const top = schema.children?.find((n) => n.name === name && n.plugin)
  const { lists, containers } = useMemo(() => (top ? tables(top) : { lists: [], containers: [] }), [top])
  const list = lists.find((l) => l.path === wanted) ?? lists.find((l) => l.name === 'summary') ?? lists.find((l) => l.name === 'flow') ?? lists[0]
  const live = useLive(top ? { paths: [...(list ? [list.path] : []), ...containers.map((c) => c.path)] } : null)
  const rows = useRows(live, list?.path ?? '')
  const shown = useMemo(() => (list ? columnsOf(list) : []), [list])
  const [selected, select] = useState('')
  if (!top)
    return (
      <p class="notice refused">
        No running plugin has a module with the node {name}. Plugins are listed under{' '}
        <a href={href('paths', [], { path: '/collector/plugins' })}>/collector/plugins</a>.
      </p>
    )
  const row = rows.find((r) => r.id === selected)
  const process = base.tree.list('/collector/plugins/plugin').find((r) => r.keys.name === name)
  return (
    <>
      <h1>
        {name} <small>{top.description}</small>
      </h1>
      {process && process.values.get('state/status') !== 'running' && (
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
      {list && (
        <>
          <p class="dim">{list.parent?.description ?? list.description}</p>
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
              <dd>
                {text(row.values.get(c.name), c)} <small>{unit(c)}</small>
              </dd>
            </div>
          ),
      )}
    </dl>
  )
}
