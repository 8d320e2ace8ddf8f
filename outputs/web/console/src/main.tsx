// SPDX-License-Identifier: Apache-2.0

// The console: navigation, keyboard, theme, and the subscription to the collector's state.

import { render } from 'preact'
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { AppContext, go, href, Queries, State, useRoute, type App, type Epoch } from './app'
import { alertLists, Alerts, countAlerts } from './alerts'
import type { Info } from './commands'
import { Epochs } from './epochs'
import { Flow } from './flow'
import { Live } from './live'
import { Paths } from './paths'
import { Plugin } from './plugin'
import { QueriesPage } from './queries'
import { link, type SchemaNode } from './schema'
import { Topology } from './topology'
import './style.css'

const epochsKept = 300

async function load<T>(path: string): Promise<T> {
  const resp = await fetch(path)
  if (!resp.ok) throw new Error(`${path}: ${((await resp.json()) as { error: string }).error}`)
  return (await resp.json()) as T
}

// remember keeps the epoch in the collector's state.
function remember(epochs: Epoch[], values: Map<string, unknown>): void {
  const number = Number(values.get('number'))
  if (!number) return
  const copy = new Map([...values].map(([k, v]) => [k, String(v)]))
  if (epochs.at(-1)?.number === number) epochs.pop()
  epochs.push({ number, values: copy })
  if (epochs.length > epochsKept) epochs.shift()
}

function useConsole(): { app?: App; error: string } {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  const [error, setError] = useState('')
  const app = useRef<App>(undefined)
  useEffect(() => {
    const epochs: Epoch[] = []
    let plugins = ''
    const schema = async () => link(await load<SchemaNode>('/api/schema'))
    // follow subscribes to the collector's state and to the alerts of the plugins.
    const follow = (tree: SchemaNode): Live => {
      const base = new Live({ paths: ['/collector', ...alertLists(tree).map((l) => l.path)] }, () => changed(base))
      base.tree.onSet = (row) => row.path === '/collector/epoch/state' && remember(epochs, row.values)
      return base
    }
    const changed = (base: Live) => {
      // A plugin that starts brings its modules.
      const running = base.tree
        .list('/collector/plugins/plugin')
        .filter((r) => r.values.get('state/status') === 'running')
        .map((r) => r.path)
        .join()
      if (plugins && running && running !== plugins) void schema().then(replace)
      plugins = running || plugins
      draw(0)
    }
    const replace = (tree: SchemaNode) => {
      app.current!.schema = tree
      app.current!.base.close()
      app.current!.base = follow(tree)
      draw(0)
    }
    void Promise.all([load<Info>('/api/info'), schema()])
      .then(([info, tree]) => {
        app.current = { info, schema: tree, base: follow(tree), epochs, queries: new Queries(() => draw(0)) }
        draw(0)
      })
      .catch((e: unknown) => setError(String(e)))
    return () => app.current?.base.close()
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

  if (error)
    return (
      <p class="notice refused" role="alert">
        The console cannot start: {error}
      </p>
    )
  if (!app) return <p class="notice">Loading…</p>
  const epoch = app.base.tree.one('/collector/epoch/state')
  const status = String(epoch?.values.get('status') ?? '')
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
        <span class={'pill ' + (app.base.status === 'live' ? status : 'lost')} title={app.base.error}>
          {app.base.status === 'live' ? `epoch ${epoch?.values.get('number') ?? '–'} ${status}` : app.base.status}
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
