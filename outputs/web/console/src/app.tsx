// SPDX-License-Identifier: Apache-2.0

// What all pages share: the schema, the state of the collector, the address in the browser.

import { createContext } from 'preact'
import { useContext, useEffect, useMemo, useReducer, useState } from 'preact/hooks'
import type { Info } from './commands'
import { Live, type Request, type Row } from './live'
import type { SchemaNode } from './schema'

// Epoch is a past epoch: the leaves of /collector/epoch/state.
export interface Epoch {
  number: number
  values: Map<string, string>
}

export interface App {
  info: Info
  schema: SchemaNode
  base: Live // the collector's own state
  epochs: Epoch[] // since the console was opened, oldest first
  queries: Queries
}

export const AppContext = createContext<App | undefined>(undefined)

export const useApp = (): App => useContext(AppContext)!

// useLive follows paths while the component is on the page. A request of null follows nothing.
export function useLive(request: Request | null): Live | undefined {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  const [live, setLive] = useState<Live>()
  const id = JSON.stringify(request)
  useEffect(() => {
    if (!request || !request.paths.length) {
      setLive(undefined)
      return
    }
    const l = new Live(request, () => draw(0))
    setLive(l)
    return () => l.close()
  }, [id])
  return live && JSON.stringify(live.request) === id ? live : undefined
}

// useRows returns the rows of a list, the same array until the tree changes.
export function useRows(live: Live | undefined, list: string): Row[] {
  return useMemo(() => live?.tree.list(list) ?? [], [live, list, live?.tree.version])
}

// Queries are the queries that the user started. They run until they are stopped or the console is
// closed, on whichever page the user is.
export class Queries {
  texts: string[] = []
  live?: Live
  constructor(private changed: () => void) {}

  start(text: string): void {
    if (!this.texts.includes(text)) this.follow([...this.texts, text])
  }

  stop(text: string): void {
    this.follow(this.texts.filter((t) => t !== text))
  }

  private follow(texts: string[]): void {
    this.texts = texts
    const before = this.live
    this.live = texts.length
      ? new Live(
          {
            paths: [
              ...texts.map((t) => `/omnimon/requests/request[text=${t.replace(/[\]\\]/g, '\\$&')}]`),
              '/omnimon/queries',
            ],
          },
          this.changed,
        )
      : undefined
    before?.close() // after the new one, so that the queries that stay run on
    this.changed()
  }
}

// Route is the page in the address: "#/plugin/univmon?list=…".
export interface Route {
  page: string
  rest: string[]
  query: URLSearchParams
}

export function route(): Route {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?')
  const [page = '', ...rest] = path.split('/').map(decode)
  return { page, rest, query: new URLSearchParams(query) }
}

// decode leaves a part alone that a person has typed with a stray percent sign.
function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export function href(page: string, rest: string[] = [], query: Record<string, string> = {}): string {
  const q = new URLSearchParams(query).toString()
  return '#/' + [page, ...rest].map(encodeURIComponent).join('/') + (q ? '?' + q : '')
}

export function useRoute(): Route {
  const [now, set] = useState(route)
  useEffect(() => {
    const changed = () => set(route())
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])
  return now
}

// go changes the address; replace leaves no entry in the browser's history.
export function go(to: string, replace = false): void {
  if (replace) {
    history.replaceState(null, '', to)
    dispatchEvent(new HashChangeEvent('hashchange'))
  } else location.hash = to
}

// State shows why a page has no values.
export function State({ live }: { live?: Live }) {
  if (!live || live.status === 'live') return null
  const text = {
    connecting: 'Connecting…',
    paused: 'Paused while the page is hidden.',
    refused: `Refused: ${live.error}`,
    lost: `No connection to the collector (${live.error}); trying again.`,
  }[live.status]
  return (
    <p class={'notice ' + live.status} role="status">
      {text}
    </p>
  )
}
