// SPDX-License-Identifier: Apache-2.0

// The console: navigation, keyboard, theme, and the subscription to the collector's state.

import { render } from 'preact'
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { AppContext, go, href, Queries, State, useRoute, type App, type Epoch } from './app'
import { alertLists, Alerts, countAlerts } from './alerts'
import type { Info } from './commands'
import { Epochs } from './epochs'
import { Flow } from './flow'
import { epochTime, setEpoch } from './format'
import { Live, type Row } from './live'
import { Paths } from './paths'
import { Plugin } from './plugin'
import { QueriesPage } from './queries'
import { link, type SchemaNode } from './schema'
import { Topology } from './topology'
import './style.css'

const epochsKept = 300

async function load(path: string): Promise<string> {
  const resp = await fetch(path)
  const body = await resp.text()
  if (!resp.ok) throw new Error(`${path}: ${resp.status} ${body}`)
  return body
}

// remember keeps the epoch in the collector's state.
function remember(epochs: Epoch[], { values }: Row): void {
  const number = Number(values.get('number'))
  if (!number) return
  const copy = new Map([...values].map(([k, v]) => [k, String(v)]))
  if (epochs.at(-1)?.number === number) epochs.pop()
  epochs.push({ number, values: copy })
  if (epochs.length > epochsKept) epochs.shift()
}

// useConsole loads what all pages share, again when plugins change and when the collector is back,
// and until it succeeds.
function useConsole(): { app?: App; error: string } {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  const [error, setError] = useState('')
  const app = useRef<App>(undefined)
  useEffect(() => {
    const epochs: Epoch[] = []
    let plugins = ''
    let known = '' // the schema as text
    let status = ''
    let closed = false
    let wait = 500
    let timer = 0
    // follow subscribes to the collector's state and to the alerts of the plugins.
    const follow = (paths: string[]): Live => {
      status = ''
      const base = new Live({ paths }, () => changed(base))
      base.tree.onSet = (row) => row.path === '/collector/epoch/state' && remember(epochs, row)
      return base
    }
    const changed = (base: Live) => {
      const { tree } = base
      const epoch = tree.one('/collector/epoch/state')
      const length = Number(tree.one('/collector/state')?.values.get('epoch-length') ?? 1e9) / 1e6
      const number = Number(epoch?.values.get('number') ?? 0)
      if (epoch && number) setEpoch(number, Number(epoch.values.get('end') ?? 0) / 1e6 || epoch.time, length)
      // A plugin that starts brings its modules. A collector that is back may have other ones.
      const running = tree
        .list('/collector/plugins/plugin')
        .filter((r) => r.values.get('state/status') === 'RUNNING')
        .map((r) => r.path)
        .join()
      const back = base.status === 'live' && ['lost', 'refused', 'paused'].includes(status)
      if ((plugins && running && running !== plugins) || back || (base.status === 'refused' && status !== 'refused')) void start()
      plugins = running || plugins
      if (base.status !== 'connecting') status = base.status
      draw(0)
    }
    const start = async () => {
      clearTimeout(timer)
      try {
        const [info, text] = await Promise.all([load('/api/info'), load('/api/schema')])
        if (closed) return
        const before = app.current
        const schema = before && text === known ? before.schema : link(JSON.parse(text) as SchemaNode)
        known = text
        const paths = ['/collector', '/topology', ...alertLists(schema).map((l) => l.path)]
        const same = before?.base.request.paths.join() === paths.join()
        app.current = {
          info: JSON.parse(info) as Info,
          schema,
          base: before && same ? before.base : follow(paths),
          epochs,
          queries: before?.queries ?? new Queries(() => draw(0)),
        }
        if (!same) before?.base.close()
        wait = 500
        setError('')
        draw(0)
      } catch (e) {
        if (closed) return
        setError(e instanceof Error ? e.message : String(e))
        timer = setTimeout(() => void start(), wait)
        wait = Math.min(wait * 2, 10_000)
      }
    }
    void start()
    return () => {
      closed = true
      clearTimeout(timer)
      app.current?.base.close()
    }
  }, [])
  return { app: app.current, error }
}

type Theme = 'auto' | 'light' | 'dark'

function useTheme(): [Theme, () => void] {
  const [theme, set] = useState<Theme>(() => (localStorage.getItem('theme') as Theme | null) ?? 'auto')
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    localStorage.setItem('theme', theme)
    dispatchEvent(new Event('themechange'))
  }, [theme])
  return [theme, () => set(theme === 'auto' ? 'light' : theme === 'light' ? 'dark' : 'auto')]
}

function Console() {
  const { app, error } = useConsole()
  const { page, rest, query } = useRoute()
  const [theme, nextTheme] = useTheme()
  const [help, setHelp] = useState(false)

  const plugins = app?.schema.children?.filter((n) => n.plugin) ?? []
  const title =
    { '': 'Topology', topology: 'Topology', epochs: 'Epochs', alerts: 'Alerts', flow: 'Flows', queries: 'Queries', paths: 'Paths', plugin: rest[0] }[page] ??
    'No page'
  const detail = query.get('select') || query.get('key') || query.get('path') || query.get('list')
  useEffect(() => {
    document.title = `${detail ? detail + ' – ' : ''}${title} – netsketch`
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [title, detail, !app])

  const pages: { to: string; name: string; here: boolean; count?: number }[] = [
    { to: href('topology'), name: 'Topology', here: page === 'topology' || page === '' },
    { to: href('epochs'), name: 'Epochs', here: page === 'epochs' },
    { to: href('alerts'), name: 'Alerts', here: page === 'alerts', count: app ? countAlerts(app) : 0 },
    { to: href('flow'), name: 'Flows', here: page === 'flow' },
    ...(plugins.some((p) => p.name === 'omnimon')
      ? [{ to: href('queries'), name: 'Queries', here: page === 'queries', count: app?.queries.texts.length }]
      : []),
    ...plugins.map((p) => ({ to: href('plugin', [p.name]), name: p.name, here: page === 'plugin' && rest[0] === p.name })),
    { to: href('paths'), name: 'Paths', here: page === 'paths' },
  ]

  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test((e.target as HTMLElement).tagName)
      if (e.key === 'Escape') {
        setHelp(false)
        ;(document.activeElement as HTMLElement | null)?.blur()
      }
      if (typing || e.ctrlKey || e.metaKey || e.altKey) return
      const n = Number(e.key)
      if (n >= 1 && n <= pages.length) go(pages[n - 1]!.to)
      if (e.key === '/') {
        e.preventDefault()
        document.querySelector<HTMLElement>('main input[type=search], main textarea')?.focus()
      }
      if (e.key === '?') setHelp(true)
      if (e.key === 't') nextTheme()
    }
    addEventListener('keydown', keys)
    return () => removeEventListener('keydown', keys)
  })

  if (!app)
    return error ? (
      <p class="notice refused" role="alert">
        The console cannot start: {error}; trying again.
      </p>
    ) : (
      <p class="notice">Loading…</p>
    )
  const epoch = app.base.tree.one('/collector/epoch/state')
  const status = String(epoch?.values.get('status') ?? '')
  const number = Number(epoch?.values.get('number') ?? 0)
  return (
    <AppContext.Provider value={{ ...app }}>
      <header>
        <a class="brand" href={href('topology')}>
          netsketch
        </a>
        <nav aria-label="Pages">
          {pages.map((p) => (
            <a key={p.to} href={p.to} aria-current={p.here ? 'page' : undefined}>
              {p.name}
              {p.count ? <span class="badge">{p.count}</span> : null}
            </a>
          ))}
        </nav>
        <span class={'pill ' + (app.base.status === 'live' ? status : 'LOST')} title={app.base.error || `epoch ${number}`}>
          {app.base.status !== 'live' ? app.base.status : number ? `epoch of ${epochTime(number)} ${status}` : 'no epoch yet'}
        </span>
        <button class="theme" onClick={nextTheme} title="Theme (t)">
          {theme}
        </button>
      </header>
      <main>
        <State live={app.base} />
        {page === 'epochs' ? (
          <Epochs />
        ) : page === 'alerts' ? (
          <Alerts />
        ) : page === 'flow' ? (
          <Flow flow={query.get('key') ?? ''} />
        ) : page === 'queries' ? (
          <QueriesPage />
        ) : page === 'plugin' ? (
          <Plugin key={rest[0]} name={rest[0] ?? ''} list={query.get('list') ?? ''} />
        ) : page === 'paths' ? (
          <Paths path={query.get('path') ?? ''} target={query.get('target') ?? ''} />
        ) : title !== 'Topology' ? (
          <>
            <h1>No page</h1>
            <p class="notice refused">
              The console has no page {page}. <a href={href('topology')}>Topology</a> is the first one.
            </p>
          </>
        ) : (
          <Topology selected={query.get('select') ?? ''} />
        )}
      </main>
      {help && (
        <dialog open aria-label="Keys">
          <h2>Keys</h2>
          <dl class="keys">
            <dt>1 … 9</dt>
            <dd>pages, in the order of the navigation</dd>
            <dt>/</dt>
            <dd>the filter or the search of the page</dd>
            <dt>↑ ↓ or j k</dt>
            <dd>rows of a table, once it has the focus</dd>
            <dt>t</dt>
            <dd>theme: of the system, light, dark</dd>
            <dt>Esc</dt>
            <dd>leaves a field, closes this</dd>
          </dl>
          <button onClick={() => setHelp(false)}>close</button>
        </dialog>
      )}
    </AppContext.Provider>
  )
}

render(<Console />, document.getElementById('app')!)
