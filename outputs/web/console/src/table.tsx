// SPDX-License-Identifier: Apache-2.0

// A table of any number of rows, of which only the visible ones are drawn.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { count } from './format'

export interface TableColumn<T> {
  title: string
  hint?: string
  right?: boolean
  wide?: boolean
  key?: boolean // names the row: on a narrow page it has a line of its own, above the values
  text: (row: T) => string
  tip?: (row: T) => string // what gNMI has, if it is another text
  number?: (row: T) => number // sorts by it
}

interface Props<T> {
  label: string
  rows: T[]
  columns: TableColumn<T>[]
  id: (row: T) => string
  selected?: string
  onSelect?: (row: T) => void
  empty?: ComponentChildren
  height?: string
  order?: [number, boolean] // column and whether descending, until the user sorts
}

const wideRow = 28 // pixels
const narrowRow = 52
const margin = 8 // rows drawn above and below the visible ones

const sampled = 200 // rows that the width of a column is taken from
const widest = 44 // characters of a text; numbers are never cut

const narrowPage = matchMedia('(max-width: 640px)')

function useNarrow(): boolean {
  const [narrow, set] = useState(narrowPage.matches)
  useEffect(() => {
    const changed = () => set(narrowPage.matches)
    narrowPage.addEventListener('change', changed)
    return () => narrowPage.removeEventListener('change', changed)
  }, [])
  return narrow
}

// useWidths returns the widths of the columns, by their widest texts. They never shrink, so that the
// columns stay where they are while values change.
function useWidths<T>(rows: T[], columns: TableColumn<T>[], stacked: boolean): string {
  const grown = useRef<{ columns: TableColumn<T>[]; widths: number[] }>({ columns, widths: [] })
  return useMemo(() => {
    if (grown.current.columns !== columns) grown.current = { columns, widths: [] }
    const { widths } = grown.current
    columns.forEach((c, i) => {
      let n = Math.max(widths[i] ?? 0, c.title.length + 2)
      for (const r of rows.slice(0, sampled)) n = Math.max(n, c.text(r).length)
      widths[i] = c.number ? n : Math.min(n, widest)
    })
    return columns.flatMap((c, i) => (stacked && c.key ? [] : `minmax(${widths[i]! + 2}ch, ${c.wide ? 3 : 1}fr)`)).join(' ')
  }, [rows, columns, stacked])
}

export function Table<T>({ label, rows, columns, id, selected, onSelect, empty, height, order }: Props<T>) {
  const [sort, setSort] = useState<[number, boolean] | undefined>(order)
  const [filter, setFilter] = useState('')
  const [top, setTop] = useState(0)
  const [view, setView] = useState(600)
  const scroller = useRef<HTMLDivElement>(null)

  useEffect(() => {
    const at = scroller.current!
    const seen = new ResizeObserver(() => setView(at.clientHeight))
    seen.observe(at)
    return () => seen.disconnect()
  }, [])

  const by = sort && columns[sort[0]]
  const shown = useMemo(() => {
    const want = filter.toLowerCase()
    const out = want ? rows.filter((r) => columns.some((c) => c.text(r).toLowerCase().includes(want) || c.tip?.(r).toLowerCase().includes(want))) : rows.slice()
    if (!by) return out
    const sign = sort![1] ? -1 : 1
    if (by.number) {
      // Every key is computed once; rows without a value come last.
      const keyed = out.map((r) => ({ r, k: by.number!(r) }))
      keyed.sort((a, b) => (Number.isNaN(a.k) ? 1 : Number.isNaN(b.k) ? -1 : sign * (a.k - b.k)))
      return keyed.map((x) => x.r)
    }
    const keyed = out.map((r) => ({ r, k: by.text(r) }))
    keyed.sort((a, b) => (a.k < b.k ? -sign : a.k > b.k ? sign : 0))
    return keyed.map((x) => x.r)
  }, [rows, filter, sort, columns])

  const stacked = useNarrow() && columns.some((c) => c.key) && columns.some((c) => !c.key)
  const rowHeight = stacked ? narrowRow : wideRow
  const first = Math.max(0, Math.min(Math.floor(top / rowHeight) - margin, shown.length - 1))
  const last = Math.min(shown.length, Math.ceil((top + view) / rowHeight) + margin)
  const template = useWidths(rows, columns, stacked)

  const move = (by: number) => {
    if (!onSelect || !shown.length) return
    const at = shown.findIndex((r) => id(r) === selected)
    const next = Math.max(0, Math.min(shown.length - 1, at + by))
    if (next !== at) onSelect(shown[next]!)
    const s = scroller.current!
    if (next * rowHeight < s.scrollTop) s.scrollTop = next * rowHeight
    if ((next + 2) * rowHeight > s.scrollTop + s.clientHeight) s.scrollTop = (next + 2) * rowHeight - s.clientHeight
  }
  const keys = (e: KeyboardEvent) => {
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[e.key]
    if (by === undefined) return
    e.preventDefault()
    move(by)
  }

  return (
    <div class="table">
      <div class="table-bar">
        <input
          type="search"
          class="filter"
          placeholder="filter"
          aria-label={`Filter ${label}`}
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
        <span class="count">
          {shown.length === rows.length ? '' : `${count(shown.length)} of `}
          {count(rows.length)} {rows.length === 1 ? 'row' : 'rows'}
        </span>
      </div>
      <div
        class="scroller"
        ref={scroller}
        style={{ height: `min(${height ?? '60vh'}, ${Math.max(rows.length + 1, 2) * rowHeight + 14}px)` }}
        tabIndex={0}
        role="grid"
        aria-label={label}
        aria-rowcount={shown.length}
        onScroll={(e) => setTop(e.currentTarget.scrollTop)}
        onKeyDown={keys}
      >
        <Cells columns={columns} stacked={stacked} template={template} class="head">
          {(c) => (
            <span
              key={c.title}
              role="columnheader"
              class={classOf(c, stacked)}
              aria-sort={by === c ? (sort![1] ? 'descending' : 'ascending') : 'none'}
            >
              <button title={c.hint} onClick={() => setSort(by === c ? [sort![0], !sort![1]] : [columns.indexOf(c), !!c.number])}>
                {c.title}
                {by === c ? (sort![1] ? ' ↓' : ' ↑') : ''}
              </button>
            </span>
          )}
        </Cells>
        <div style={{ height: `${first * rowHeight}px` }} />
        {shown.slice(first, last).map((r, i) => {
          const key = id(r)
          return (
            <Cells
              key={key}
              columns={columns}
              stacked={stacked}
              template={template}
              index={first + i + 1}
              class={key === selected ? 'selected' : ''}
              selected={key === selected}
              onClick={() => onSelect?.(r)}
            >
              {(c) => {
                const shown = c.text(r)
                const more = c.tip?.(r) ?? ''
                return (
                  <span
                    key={c.title}
                    role="gridcell"
                    class={classOf(c, stacked)}
                    title={more && more !== shown ? `${shown} (${more})` : shown}
                  >
                    {shown}
                  </span>
                )
              }}
            </Cells>
          )
        })}
        <div style={{ height: `${Math.max(0, shown.length - last) * rowHeight}px` }} />
        {!rows.length && <p class="empty">{empty ?? 'No rows yet.'}</p>}
      </div>
    </div>
  )
}

const classOf = <T,>(c: TableColumn<T>, stacked: boolean): string => (stacked && c.key ? (c.wide ? 'wide' : '') : c.right ? 'right' : '')

interface CellsProps<T> {
  columns: TableColumn<T>[]
  stacked: boolean
  template: string
  class: string
  index?: number
  selected?: boolean
  onClick?: () => void
  children: (c: TableColumn<T>) => ComponentChildren
}

// Cells is a row: its cells beside each other, or the keys above the values.
function Cells<T>({ columns, stacked, template, class: name, index, selected, onClick, children }: CellsProps<T>) {
  return (
    <div
      role="row"
      aria-rowindex={index}
      aria-selected={selected}
      class={`tr${name && " " + name}${stacked ? ' stacked' : ''}`}
      style={{ gridTemplateColumns: template }}
      onClick={onClick}
    >
      {stacked && (
        <div class="keys-of" role="presentation">
          {columns.filter((c) => c.key).map(children)}
        </div>
      )}
      {columns.filter((c) => !stacked || !c.key).map(children)}
    </div>
  )
}
