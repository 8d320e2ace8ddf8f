// SPDX-License-Identifier: Apache-2.0

// The YANG schema as the server sends it, and paths.

export interface SchemaNode {
  name: string
  module?: string
  kind: 'root' | 'container' | 'list' | 'leaf' | 'leaf-list'
  description?: string
  config?: boolean
  plugin?: boolean
  type?: string
  base?: string
  units?: string
  values?: string[]
  share?: boolean // from 0 to 1
  keys?: string[]
  measurement?: string
  tags?: string[]
  children?: SchemaNode[]
  // Set by link.
  parent?: SchemaNode
  path: string // without keys
}

// link sets parents and paths.
export function link(n: SchemaNode, parent?: SchemaNode): SchemaNode {
  n.parent = parent
  n.path = parent ? (parent.kind === 'root' ? '' : parent.path) + '/' + n.name : '/'
  n.children?.forEach((c) => link(c, n))
  return n
}

// find returns the node at a path, with or without keys.
export function find(root: SchemaNode, path: string): SchemaNode | undefined {
  let at: SchemaNode | undefined = root
  for (const e of parse(path)) at = at?.children?.find((c) => c.name === e.name)
  return at
}

// above returns a node and its parents, the topmost first.
export function above(n: SchemaNode): SchemaNode[] {
  return n.parent && n.parent.kind !== 'root' ? [...above(n.parent), n] : [n]
}

// keyLeaf returns the leaf of a list's key.
export const keyLeaf = (list: SchemaNode, key: string): SchemaNode | undefined => list.children?.find((c) => c.name === key)

// flowKeys returns the keys of a list that name a flow: by their type, or else by the name.
export function flowKeys(list: SchemaNode): string[] {
  const typed = list.keys?.filter((k) => keyLeaf(list, k)?.type === 'flow-key') ?? []
  return typed.length ? typed : (list.keys?.filter((k) => k === 'flow') ?? [])
}

// switchKey returns the key of a list that names a switch or host.
export const switchKey = (list: SchemaNode): string | undefined =>
  list.keys?.find((k) => k === 'node' || keyLeaf(list, k)?.type === 'node-name')

// entryPath returns the path of the entries whose keys have these values; a key without a value has
// any.
export function entryPath(list: SchemaNode, value: (of: SchemaNode, key: string) => string | undefined): string {
  return above(list)
    .map((n) => withKeys('/' + n.name, (n.keys ?? []).flatMap((k): [string, string][] => {
      const v = value(n, k)
      return v === undefined ? [] : [[k, v]]
    })))
    .join('')
}

// A column of a list: a leaf below its entries.
export interface Column {
  leaf: string // path below the entry
  title: string
  node: SchemaNode
}

// columns returns the leaves below an entry of a list, or below a container, without nested lists,
// configuration that state repeats, and leaves that repeat a key.
export function columns(of: SchemaNode): Column[] {
  const out: Column[] = []
  const walk = (n: SchemaNode, prefix: string) => {
    for (const c of n.children ?? []) {
      const leaf = prefix + c.name
      if (c.kind === 'container') walk(c, leaf + '/')
      if (c.kind !== 'leaf') continue
      if (of.keys?.includes(c.name)) continue
      if (c.config && prefix.endsWith('config/')) continue
      out.push({ leaf, title: leaf.replace(/(^|\/)state\//, '$1'), node: c })
    }
  }
  walk(of, '')
  return out
}

// tables returns the lists below a node and the containers with leaves that are in no list.
export function tables(of: SchemaNode): { lists: SchemaNode[]; containers: SchemaNode[] } {
  const lists: SchemaNode[] = []
  const containers: SchemaNode[] = []
  const walk = (n: SchemaNode, inList: boolean) => {
    for (const c of n.children ?? []) {
      if (c.kind === 'list') {
        lists.push(c)
        walk(c, true)
      } else if (c.kind === 'container') {
        if (!inList && c.name !== 'config' && c.children?.some((x) => x.kind === 'leaf')) containers.push(c)
        walk(c, inList)
      }
    }
  }
  walk(of, false)
  return { lists, containers }
}

const numeric = /^(u?int(8|16|32|64)|decimal64)$/

export const isNumber = (n: SchemaNode): boolean => numeric.test(n.base ?? '')

export interface Elem {
  name: string
  keys: [string, string][]
}

// parse reads a path in gNMI's text form.
export function parse(path: string): Elem[] {
  const out: Elem[] = []
  let i = 0
  const until = (stop: string): string => {
    let text = ''
    for (; i < path.length && !stop.includes(path[i]!); i++) {
      if (path[i] === '\\' && i + 1 < path.length) i++
      text += path[i]
    }
    return text
  }
  while (i < path.length) {
    i++ // the slash
    const name = until('/[')
    if (!name) continue
    const e: Elem = { name, keys: [] }
    while (path[i] === '[') {
      i++
      const key = until('=')
      i++
      e.keys.push([key, until(']')])
      i++
    }
    out.push(e)
  }
  return out
}

// listOf returns a path without keys.
export function listOf(path: string): string {
  return path.includes('[') ? '/' + parse(path).map((e) => e.name).join('/') : path
}

const escape = (value: string): string => value.replace(/[\]\\]/g, '\\$&')

// withKeys returns a path of an entry.
export function withKeys(list: string, keys: [string, string][]): string {
  return list + keys.map(([k, v]) => `[${k}=${escape(v)}]`).join('')
}
