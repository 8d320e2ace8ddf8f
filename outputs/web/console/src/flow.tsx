// SPDX-License-Identifier: Apache-2.0

// Flow search: what every plugin knows of one flow, at every switch.

import { useEffect, useMemo, useState } from 'preact/hooks'
import { go, href, State, useApp, useLive, useRows } from './app'
import { Details } from './details'
import type { Live, Row } from './live'
import { columnsOf } from './plugin'
import { above, entryPath, flowKeys, keyLeaf, switchKey, tables, type SchemaNode } from './schema'
import { Table } from './table'

// flowLists returns the lists of plugins with a key that names a flow.
export function flowLists(schema: SchemaNode): SchemaNode[] {
  return (schema.children ?? [])
    .filter((n) => n.plugin)
    .flatMap((n) => tables(n).lists)
    .filter((l) => flowKeys(l).length)
}

// Forms are how the text of a flow is written in each dimension that has keys of its form.
type Forms = Record<string, string>

// Values are the values that a key may have.
type Values = (of: SchemaNode, key: string) => string[]

const isDimension = (of: SchemaNode, key: string) => keyLeaf(of, key)?.type === 'dimension'

// ownValues returns the values of a key by its type; undefined if only rows show them.
function ownValues(of: SchemaNode, key: string, devices: string[]): string[] | undefined {
  const leaf = keyLeaf(of, key)
  if (leaf?.values?.length) return leaf.values
  if (leaf?.base === 'boolean') return ['true', 'false']
  return key === switchKey(of) ? ['network', ...devices] : undefined
}

// samplesOf returns the lists of a plugin whose rows show the values of a key: those that have rows
// for few things rather than for each flow, if there is one.
function samplesOf(of: SchemaNode, key: string): string[] {
  const all = tables(above(of)[0]!).lists.filter((l) => l.keys?.includes(key))
  const few = all.filter((l) => !flowKeys(l).length)
  return (few.length ? few : all).map((l) => l.path)
}

const unknownKeys = (list: SchemaNode): [SchemaNode, string][] =>
  above(list).flatMap((n) => (n.keys ?? []).filter((k) => n !== list || k !== flowKeys(list)[0]).map((k): [SchemaNode, string] => [n, k]))

const mostPaths = 1500

// pathsOf returns the paths of a flow in a list. Where the plugin computes any row, a path with all
// keys makes the flow watched, so that the plugin reports it also if it is in no list: there is a
// path for each value of the other keys. In another list these have any value.
export function pathsOf(list: SchemaNode, flow: string, forms: Forms | undefined, watchable: boolean, values: Values): string[] {
  const typed = keyLeaf(list, flowKeys(list)[0]!)?.type === 'flow-key'
  const texts = typed && forms ? [...new Set(Object.values(forms))] : [flow]
  if (!watchable)
    return flowKeys(list).flatMap((key) => texts.map((t) => entryPath(list, (n, k) => (n === list && k === key ? t : undefined))))
  const dimension = list.keys!.find((k) => isDimension(list, k))
  let out: Map<string, string>[] = []
  for (const t of texts) {
    let entries = [new Map([[list.path + flowKeys(list)[0], t]])]
    for (const [n, k] of unknownKeys(list)) {
      const fit = values(n, k).filter((v) => n !== list || k !== dimension || !typed || !forms || forms[v] === t)
      entries = entries.flatMap((e) => fit.map((v) => new Map([...e, [n.path + k, v]])))
    }
    out = [...out, ...entries]
  }
  return out.map((e) => entryPath(list, (n, k) => e.get(n.path + k)))
}

// useForms asks the collector how a flow is written, and what is wrong with it.
function useForms(flow: string): { forms?: Forms; wrong: string; known: boolean } {
  const [answer, set] = useState<{ flow: string; forms?: Forms; wrong: string }>()
  useEffect(() => {
    if (!flow) return
    let left = false
    void fetch('/api/flow?' + new URLSearchParams({ key: flow }).toString())
      .then(async (resp) => {
        const { forms, error } = (await resp.json()) as { forms: Forms | null; error: string }
        if (!left) set({ flow, forms: forms ?? undefined, wrong: error })
      })
      .catch(() => !left && set({ flow, wrong: '' })) // the page says that the collector is away
    return () => {
      left = true
    }
  }, [flow])
  return answer?.flow === flow ? { ...answer, known: true } : { wrong: '', known: false }
}

// useRefusals asks plugins for one row of each watchable list, and returns what they say against
// its keys.
function useRefusals(paths: string[]): string[] {
  const [said, set] = useState<string[]>([])
  const id = paths.join('\n')
  useEffect(() => {
    let left = false
    set([])
    void Promise.all(
      paths.map(async (path) => {
        const resp = await fetch('/api/get', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ paths: [path] }) })
        const { code, error } = (await resp.json()) as { code?: string; error: string }
        return code === 'FailedPrecondition' || code === 'InvalidArgument' ? error : ''
      }),
    )
      .then((all) => !left && set(all.filter(Boolean)))
      .catch(() => {}) // the page says that the collector is away
    return () => {
      left = true
    }
  }, [id])
  return said
}

export function Flow({ flow }: { flow: string }) {
  const { schema, base, info } = useApp()
  const lists = useMemo(() => flowLists(schema), [schema])
  const watchable = (l: SchemaNode) => info.watchable.includes(l.path)
  const devices = ['devices/device', 'hosts/host'].flatMap((l) => base.tree.list('/collector/' + l).map((r) => r.keys.node!))
  const names = devices.join()
  const { forms, wrong, known } = useForms(flow)
  const strict = lists.filter((l) => keyLeaf(l, flowKeys(l)[0]!)?.type === 'flow-key')
  const searched = wrong ? lists.filter((l) => !strict.includes(l)) : lists

  // Values of keys that no type gives come from rows.
  const samples = useMemo(
    () => [...new Set(lists.filter(watchable).flatMap((l) => unknownKeys(l).filter(([n, k]) => !ownValues(n, k, []))).flatMap(([n, k]) => samplesOf(n, k)))],
    [lists, info.watchable.join()],
  )
  const sampled = useLive(flow && samples.length ? { paths: samples } : null)
  const seen = (n: SchemaNode, k: string) => [...new Set(samplesOf(n, k).flatMap((l) => sampled?.tree.list(l) ?? []).map((r) => r.keys[k]!))].sort()
  const values: Values = (n, k) => ownValues(n, k, devices) ?? seen(n, k)
  const found = lists.filter(watchable).flatMap((l) => unknownKeys(l).map(([n, k]) => `${n.path} ${k}: ${values(n, k).join()}`)).join('\n')

  const byList = useMemo(
    () => new Map(flow && known ? searched.map((l) => [l, pathsOf(l, flow, forms, watchable(l), values)]) : []),
    [flow, known, forms, wrong, lists, names, found, info.watchable.join()],
  )
  const all = useMemo(() => [...byList.values()].flat(), [byList])
  const paths = useMemo(() => all.slice(0, mostPaths), [all])
  const live = useLive(paths.length ? { paths } : null)
  const refusals = useRefusals(useMemo(() => [...byList].flatMap(([l, of]) => (watchable(l) ? of.slice(0, 1) : [])), [byList]))
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
      {flow && wrong && strict.length > 0 && (
        <p class="notice refused" role="alert">
          This is no flow: {wrong}.
        </p>
      )}
      {refusals.map((r) => (
        <p key={r} class="notice refused" role="alert">
          {r}
        </p>
      ))}
      {flow && (!samples.length || sampled?.status === 'live') && [...byList].map(([l, of]) => !of.length && <Unwatched key={l.path} list={l} forms={forms} values={values} />)}
      {all.length > mostPaths && (
        <p class="notice lost">
          The flow has {all.length} paths, of which the first {mostPaths} are watched. Open one by its path instead:{' '}
          <a href={href('paths', [], { path: all.at(-1)! })}>{all.at(-1)}</a>
        </p>
      )}
      {flow && <State live={live} />}
      {live && <Found key={flow} live={live} lists={lists} flow={flow} watched={lists.some((l) => watchable(l) && byList.get(l)?.length)} />}
    </>
  )
}

// Unwatched says why no row of a watchable list is watched.
function Unwatched({ list, forms, values }: { list: SchemaNode; forms?: Forms; values: Values }) {
  const open = unknownKeys(list).filter(([n, k]) => !values(n, k).length)
  const dimension = list.keys!.find((k) => isDimension(list, k))
  const plugin = above(list)[0]!.name
  return (
    <p class="notice lost">
      {open.length
        ? `${plugin} computes any row of ${list.path}, but has published no row yet that shows the values of its key ${open.map(([, k]) => k).join(' and ')}.`
        : `${plugin} counts by ${dimension ? values(list, dimension).join(', ') : 'other keys'}; this is a key of ${Object.keys(forms ?? {}).join(', ')}.`}{' '}
      <a href={href('paths', [], { path: list.path })}>Open the list</a>
    </p>
  )
}

function Found({ live, lists, flow, watched }: { live: Live; lists: SchemaNode[]; flow: string; watched: boolean }) {
  const rows = [...live.tree.rows.values()]
  const path = rows.map((r) => String(r.values.get('state/path') ?? '')).find(Boolean)
  // Several lists may have the same losses.
  const known = (r: Row) => {
    const quality = r.values.get('state/lost-packets-quality') ?? r.values.get('state/quality')
    return quality === 'EXACT' || quality === 'LOWER_BOUND'
  }
  const lossOf = (settled: boolean) =>
    Math.max(0, ...rows.filter((r) => known(r) === settled).map((r) => Number(r.values.get('state/lost-packets') ?? 0)))
  const lost = lossOf(true)
  const provisional = lossOf(false)
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
      {lost > 0 && <p class="notice lost">{lost} packets of the flow were lost in an epoch that is settled.</p>}
      {provisional > lost && (
        <p class="notice">{provisional} packets of the flow have not arrived. This is provisional: they may be late.</p>
      )}
      {live.status === 'live' && !rows.length && (
        <p class="notice">
          No plugin has reported {flow} yet.{' '}
          {watched
            ? 'It is watched: values come with the next epoch, or never if the flow has no packets.'
            : 'No plugin that runs computes any flow, so a flow without packets, or one that no list has, has no row.'}
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
  const shown = useMemo(() => columnsOf(list).filter((c) => !flowKeys(list).includes(c.title) || flowKeys(list).length > 1), [list])
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
