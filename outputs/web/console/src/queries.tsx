// SPDX-License-Identifier: Apache-2.0

// Queries of OmniMon: to start, to watch, to stop.

import { useMemo } from 'preact/hooks'
import { State, useApp, useLive, useRows } from './app'
import type { Live } from './live'
import { columnsOf, Container } from './plugin'
import { find, withKeys } from './schema'
import { Table } from './table'

const example = `# Hosts that receive from many sources.
result = packets
  .distinct(dst, src)
  .map(dst, n = 1)
  .reduce(keys=(dst), sources=sum(n))
  .filter(sources > 40)`

export function QueriesPage() {
  const { schema, queries } = useApp()
  const list = find(schema, '/omnimon/queries/query')
  // The configured queries run whether this page is open or not.
  const live = useLive(list ? { paths: ['/omnimon/queries'] } : null)
  const rows = useRows(live, '/omnimon/queries/query')
  if (!list) return <p class="notice refused">OmniMon does not run in this collector.</p>
  return (
    <>
      <h1>
        Queries <small>of OmniMon, over the packets of each epoch</small>
      </h1>
      <form
        class="query"
        onSubmit={(e) => {
          e.preventDefault()
          const text = String(new FormData(e.currentTarget).get('text')).trim()
          if (text) queries.start(text + '\n')
        }}
      >
        <textarea name="text" rows={6} spellcheck={false} aria-label="Query" placeholder={example} />
        <button>start</button>
      </form>
      <p class="dim">A query runs from the next epochs on, until it is stopped here or the console is closed.</p>
      <State live={live} />
      {queries.texts.map((text) => {
        const request = queries.live?.tree.list('/omnimon/requests/request').find((r) => r.keys.text === text)
        const get = (leaf: string) => String(request?.values.get('state/' + leaf) ?? '')
        return (
          <section key={text} class="started">
            <pre>{text}</pre>
            <p class={get('status') === 'FAILED' ? 'notice refused' : 'dim'}>
              {request ? `${get('name')} ${get('status')} ${get('problem')}` : queries.live?.status === 'refused' ? queries.live.error : 'starting: the plugin takes it up with the next epoch'}
            </p>
            <button onClick={() => queries.stop(text)}>stop</button>
          </section>
        )
      })}
      {live && rows.map((r) => <Query key={r.id} live={live} name={r.keys.name!} />)}
      {live?.status === 'live' && !rows.length && <p class="dim">No query runs.</p>}
    </>
  )
}

function Query({ live, name }: { live: Live; name: string }) {
  const { schema } = useApp()
  const results = '/omnimon/queries/query/results/result'
  const query = live.tree.list('/omnimon/queries/query').find((r) => r.keys.name === name)
  const all = useRows(live, results)
  const rows = useMemo(() => all.filter((r) => r.path.startsWith(withKeys('/omnimon/queries/query', [['name', name]]) + '/')), [all, name])
  const list = find(schema, results)!
  const shown = useMemo(() => columnsOf(list).filter((c) => c.title !== 'name'), [list])
  const state = find(schema, '/omnimon/queries/query/state')!
  const leaves = query && { ...query, values: new Map([...query.values].map(([k, v]) => [k.replace(/^state\//, ''), v])) }
  return (
    <section>
      <h2>{name}</h2>
      <Container node={state} row={leaves} />
      <Table
        label={`Results of ${name}`}
        rows={rows}
        columns={shown}
        id={(r) => r.id}
        height="16rem"
        empty="The query has no result in the newest epoch."
      />
    </section>
  )
}
