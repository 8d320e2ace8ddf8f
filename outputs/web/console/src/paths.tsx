// SPDX-License-Identifier: Apache-2.0

// A browser over the live tree: the schema, the values below a path, and commands for each.

import { useMemo, useState } from 'preact/hooks'
import { go, href, State, useApp, useLive } from './app'
import { Commands, Panel } from './details'
import { clock, raw, text } from './format'
import type { Row } from './live'
import { find, parse, withKeys, type SchemaNode } from './schema'
import { Table, type TableColumn } from './table'

interface Leaf {
  row: Row
  leaf: string
  path: string
  below: string // the path from the opened one on
  node?: SchemaNode
}

const columns: TableColumn<Leaf>[] = [
  { title: 'path', wide: true, key: true, text: (l) => l.below },
  {
    title: 'value',
    text: (l) => raw(l.row.values.get(l.leaf)),
    number: (l) => Number(l.row.values.get(l.leaf)),
  },
  { title: 'read as', text: (l) => text(l.row.values.get(l.leaf), l.node) },
  { title: 'time', text: (l) => clock(l.row.time) },
]

export function Paths({ path, target }: { path: string; target: string }) {
  const { schema } = useApp()
  const node = path ? find(schema, path) : undefined
  const unknown = path && !node && !/[*]|\.\.\./.test(path)
  const live = useLive(path && !unknown ? { target, paths: [path] } : null)
  const [selected, select] = useState('')
  const version = live?.tree.version
  const leaves = useMemo(() => {
    const out: Leaf[] = []
    for (const row of live?.tree.rows.values() ?? [])
      for (const leaf of row.values.keys()) {
        const full = `${row.path}/${leaf}`
        const below = full.startsWith(path + '/') ? '…' + full.slice(path.length) : full
        out.push({ row, leaf, path: full, below, node: find(schema, `${row.list}/${leaf}`) })
      }
    return out
  }, [live, version])
  const open = (to: string) => go(href('paths', [], { path: to, ...(target ? { target } : {}) }))
  const at = leaves.find((l) => l.row.id + l.leaf === selected)
  return (
    <>
      <h1>
        Paths <small>of the gNMI tree, live</small>
      </h1>
      <form
        class="search"
        onSubmit={(e) => {
          e.preventDefault()
          const f = new FormData(e.currentTarget)
          const to = String(f.get('path')).trim()
          go(href('paths', [], { path: to.startsWith('/') ? to : '/' + to, target: String(f.get('target')).trim() }))
        }}
      >
        <input type="search" name="path" key={path} defaultValue={path} aria-label="Path" placeholder="/collector/epoch, /…/flow[flow=*]" />
        <input name="target" key={'t' + target} defaultValue={target} aria-label="Target" placeholder="target, * for all" size={14} />
        <button>open</button>
      </form>
      <nav class="crumbs" aria-label="Path">
        <a href={href('paths')}>/</a>
        {parse(path).map((e, i, all) => {
          const to = all.slice(0, i + 1).map((x) => withKeys('/' + x.name, x.keys)).join('')
          return (
            <span key={to}>
              {i > 0 && ' / '}
              <a href={href('paths', [], { path: to, ...(target ? { target } : {}) })}>{withKeys(e.name, e.keys)}</a>
            </span>
          )
        })}
      </nav>
      <div class="children">
        {(path ? node : schema)?.children?.map((c) => (
          <button key={c.name} class={c.kind} title={c.description} onClick={() => open((path === '/' ? '' : path) + '/' + c.name)}>
            {c.name}
            {c.keys?.map((k) => `[${k}]`).join('')}
          </button>
        ))}
      </div>
      {node && (
        <p class="dim">
          {node.kind}
          {node.type && `, type ${node.type}`}
          {node.units && `, in ${node.units}`}. {node.description}
        </p>
      )}
      {unknown && <p class="notice refused">No module has the path {path}.</p>}
      <State live={live} />
      {path && (
        <Table
          label="Values"
          rows={leaves}
          columns={columns}
          id={(l) => l.row.id + l.leaf}
          selected={selected}
          onSelect={(l) => select(l.row.id + l.leaf)}
          empty={live?.status === 'live' ? 'No values yet: they appear when they are published.' : ''}
        />
      )}
      {at && (
        <Panel key={selected} label="Selected value">
          <h3 class="path">{at.path}</h3>
          <p>
            {at.node?.description}{' '}
            <span class="dim">
              {at.node?.type}
              {at.node?.units && `, in ${at.node.units}`}
            </span>
          </p>
          <Commands row={at.row} leaf={at.leaf} />
        </Panel>
      )}
    </>
  )
}
