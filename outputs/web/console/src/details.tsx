// SPDX-License-Identifier: Apache-2.0

// The selected row: its values over time, and commands that read it elsewhere.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { commands } from './commands'
import { Chart } from './chart'
import { useApp } from './app'
import { clock, raw, text } from './format'
import type { Row, Tree } from './live'
import { columns, find, isNumber, type SchemaNode } from './schema'

export function Copy({ line, label }: { line: string; label: string }) {
  const [copied, setCopied] = useState(false)
  const code = useRef<HTMLElement>(null)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line)
    } catch {
      // Browsers have no clipboard on plain HTTP from another machine: the line is selected instead.
      getSelection()?.selectAllChildren(code.current!)
      return
    }
    setCopied(true)
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <div class="copy">
      <span class="tool">{label}</span>
      <code tabIndex={0} ref={code}>{line}</code>
      <button onClick={copy} aria-label={`Copy the ${label} line`}>
        {copied ? 'copied' : 'copy'}
      </button>
    </div>
  )
}

// Panel is what the page shows of a selected thing. On a narrow page, it is above or below the
// visible part, so the page scrolls to it.
export function Panel({ label, children }: { label: string; children: ComponentChildren }) {
  const at = useRef<HTMLElement>(null)
  useEffect(() => {
    if (matchMedia('(max-width: 640px)').matches && !at.current!.closest('details')) at.current!.scrollIntoView()
  }, [])
  return (
    <section class="details" aria-label={label} ref={at}>
      {children}
    </section>
  )
}

// Commands lists the lines for a row, or for one of its leaves.
export function Commands({ row, leaf }: { row: Row; leaf: string }) {
  const { info, schema } = useApp()
  return (
    <div class="commands">
      {commands(info, schema, row.target, row.path, leaf).map((c) => (
        <Copy key={c.tool} label={c.tool} line={c.line} />
      ))}
    </div>
  )
}

export function Details({ row, tree, node }: { row: Row; tree: Tree; node: SchemaNode }) {
  const all = columns(node).filter((c) => row.values.has(c.leaf))
  const numbers = all.filter((c) => isNumber(c.node) && c.node.type !== 'timestamp' && c.node.type !== 'epoch-number')
  const [leaf, setLeaf] = useState('')
  // What has a unit, or is a part of a whole, changes with time; an id or a port does not.
  const charted =
    numbers.find((c) => c.leaf === leaf) ?? numbers.find((c) => c.node.units || c.node.share) ?? numbers.find((c) => !/(^|-)(id|port|index|number)$/.test(c.node.name))
  return (
    <Panel label="Selected row">
      <h3 class="path">{row.path}</h3>
      <p class="dim">values of {clock(row.time)}</p>
      <dl class="values">
        {all.map((c) => (
          <div key={c.leaf} title={c.node.description} class={charted === c ? 'on' : ''}>
            <dt>
              {numbers.includes(c) ? (
                <button class="link" aria-pressed={charted === c} onClick={() => setLeaf(c.leaf)}>
                  {c.title}
                </button>
              ) : (
                c.title
              )}
            </dt>
            <dd>
              {text(row.values.get(c.leaf), c.node)} <small>{c.node.type === 'epoch-number' ? raw(row.values.get(c.leaf)) : unit(c.node)}</small>
            </dd>
          </div>
        ))}
      </dl>
      {charted && (
        <Chart
          title={charted.title}
          samples={tree.follow(row, charted.leaf)}
          version={tree.version}
          format={(v) => text(v, { ...charted.node, base: Number.isInteger(v) ? charted.node.base : 'decimal64' })}
        />
      )}
      <Commands row={row} leaf={charted?.leaf ?? ''} />
    </Panel>
  )
}

// unit returns what to write after a value.
export const unit = (n?: SchemaNode): string => (!n?.units || n.units === 'nanoseconds' ? '' : n.units)

export function nodeOf(schema: SchemaNode, row: Row): SchemaNode {
  return find(schema, row.list) ?? schema
}
