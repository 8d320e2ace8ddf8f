// SPDX-License-Identifier: Apache-2.0

// Epochs as a timeline, with where their time went.

import { useState } from 'preact/hooks'
import { useApp, type Epoch } from './app'
import { clock, count, duration, epochTime, text } from './format'
import { find } from './schema'
import { Table, type TableColumn } from './table'

// The stages of an epoch after its end, in their order; the drain is a part of the read-out.
const stages = [
  ['flip-time', 'flip', 'until the last switch has flipped'],
  ['wait-time', 'wait', 'guard, for packets still in the pipelines'],
  ['readout-time', 'read-out', 'switches and hosts are read'],
  ['plugin-time', 'plugins', 'the slowest plugin analyzes'],
  ['publish-time', 'publish', 'until the results are in the store'],
] as const

const ns = (e: Epoch, leaf: string): number => Number(e.values.get(leaf) ?? 0)

const columns: TableColumn<Epoch>[] = [
  { title: 'epoch', key: true, text: (e) => epochTime(e.number), tip: (e) => String(e.number), number: (e) => e.number },
  { title: 'status', key: true, text: (e) => e.values.get('status') ?? '' },
  { title: 'end', text: (e) => clock(ns(e, 'end') / 1e6) },
  ...stages.map(
    ([leaf, title, hint]): TableColumn<Epoch> => ({ title, hint, right: true, text: (e) => duration(ns(e, leaf)), number: (e) => ns(e, leaf) }),
  ),
  { title: 'total', right: true, text: (e) => duration(ns(e, 'total-time')), number: (e) => ns(e, 'total-time') },
  { title: 'rows', right: true, text: (e) => (e.values.has('rows') ? count(ns(e, 'rows')) : ''), number: (e) => ns(e, 'rows') },
  { title: 'missing', wide: true, text: (e) => e.values.get('missing') ?? '' },
]

const barsShown = 120

export function Epochs() {
  const { base, epochs, schema } = useApp()
  const [selected, select] = useState('')
  const config = base.tree.one('/collector/state')
  const length = Number(config?.values.get('epoch-length') ?? 0)
  const deadline = Number(config?.values.get('deadline') ?? 0)
  const shown = epochs.slice(-barsShown)
  const tallest = Math.max(1, ...shown.map((e) => ns(e, 'total-time')))
  const scale = Math.max(tallest * 1.1, Math.min(deadline, tallest * 3))
  const at = epochs.find((e) => String(e.number) === selected) ?? epochs.at(-1)
  const node = find(schema, '/collector/epoch/state')
  return (
    <>
      <h1>
        Epochs{' '}
        <small>
          of {duration(length)}, {epochs.length} since the console was opened
        </small>
      </h1>
      <ul class="legend">
        {stages.map(([leaf, title, hint]) => (
          <li key={leaf} title={hint}>
            <i class={'stage ' + leaf} /> {title}
          </li>
        ))}
        <li>
          <i class="status PARTIAL" /> PARTIAL
        </li>
        <li>
          <i class="status LOST" /> LOST
        </li>
      </ul>
      <div class="timeline" role="group" aria-label={`Time after the end of each epoch; the highest bar is ${duration(tallest)}`}>
        {deadline > 0 && deadline < scale && (
          <div class="deadline" style={{ bottom: `${(deadline / scale) * 100}%` }}>
            deadline {duration(deadline)}
          </div>
        )}
        {shown.map((e) => (
          <button
            key={e.number}
            class={'bar ' + (e.values.get('status') ?? '') + (at === e ? ' on' : '')}
            aria-label={`epoch of ${epochTime(e.number)}, ${e.values.get('status')}, ${duration(ns(e, 'total-time'))}`}
            onClick={() => select(String(e.number))}
          >
            {stages.map(([leaf]) => (
              <i key={leaf} class={'stage ' + leaf} style={{ height: `${(ns(e, leaf) / scale) * 100}%` }} />
            ))}
          </button>
        ))}
      </div>
      {at && (
        <dl class="values cards" aria-label={`Epoch ${at.number}`}>
          {[...at.values].map(([leaf, value]) => {
            const n = node?.children?.find((c) => c.name === leaf)
            return value ? (
              <div key={leaf} title={n?.description}>
                <dt>{leaf}</dt>
                <dd>
                  {text(value, n)} {n?.type === 'epoch-number' && <small>{value}</small>}
                </dd>
              </div>
            ) : null
          })}
        </dl>
      )}
      <Table
        label="Epochs"
        rows={epochs.slice()}
        columns={columns}
        id={(e) => String(e.number)}
        selected={selected}
        onSelect={(e) => select(String(e.number))}
        order={[0, true]}
        height="24rem"
      />
    </>
  )
}
