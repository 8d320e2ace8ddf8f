// SPDX-License-Identifier: Apache-2.0

// Commands that read a value with other tools.

import { find, parse, type SchemaNode } from './schema'

export interface Info {
  target: string
  user: string
  watchable: string[] // lists whose plugins compute any row that is named with all keys
  gnmi: { address: string; plaintext: boolean; login: boolean } | null
}

const shell = (s: string): string => "'" + s.replaceAll("'", "'\\''") + "'"
const name = (s: string): string => '"' + s.replaceAll('\\', '\\\\').replaceAll('"', '\\"') + '"'
const literal = (s: string): string => "'" + s.replaceAll('\\', '\\\\').replaceAll("'", "\\'") + "'"

// address returns where a client on this browser's machine reaches the gNMI server.
function address(info: Info): string {
  const at = info.gnmi?.address ?? ''
  const port = at.slice(at.lastIndexOf(':') + 1)
  return /^(\[::\]|0\.0\.0\.0):/.test(at) ? `${location.hostname}:${port}` : at
}

export interface Command {
  tool: string
  line: string
}

// commands returns the lines that read a path; leaf is the path below its entry, empty for all.
export function commands(info: Info, root: SchemaNode, target: string, entry: string, leaf: string): Command[] {
  const path = leaf ? `${entry}/${leaf}` : entry
  const out: Command[] = []
  const other = target !== '' && target !== info.target
  if (info.gnmi) {
    const at = address(info)
    const login = info.user || 'USER'
    const gnmic = ['gnmic', '-a', at, info.gnmi.plaintext ? '--insecure' : '--tls-ca ca.pem']
    if (info.gnmi.login) gnmic.push('-u', login, '-p', '"$PASSWORD"')
    gnmic.push('-e proto --format flat subscribe')
    if (other) gnmic.push('--target', shell(target))
    gnmic.push('--path', shell(path), '--stream-mode on-change')
    out.push({ tool: 'gnmic', line: gnmic.join(' ') })
    const cli = ['gnmi_cli', '-a', at, info.gnmi.plaintext ? '-insecure' : '-ca_crt ca.pem']
    if (info.gnmi.login) cli.push('-with_user_pass')
    if (other) cli.push('-t', shell(target))
    // With -q, gnmi_cli names no encoding, prints JSON as deprecated, and takes a comma for the end of a path.
    cli.push('-query_type streaming -display_type single', `-proto ${shell(subscribe(path))}`)
    out.push({ tool: 'gnmi_cli', line: cli.join(' ') })
  }
  const line = influxQL(root, target || info.target, entry, leaf)
  if (line) out.push({ tool: 'InfluxQL', line })
  return out
}

// subscribe returns a SubscribeRequest for a path, in the text form of Protocol Buffers.
function subscribe(path: string): string {
  const elems = parse(path).map((e) => {
    const keys = e.keys.map(([key, value]) => ` key: {key: ${name(key)} value: ${name(value)}}`)
    return `elem: {name: ${name(e.name)}${keys.join('')}}`
  })
  return `subscribe: {mode: STREAM encoding: PROTO prefix: {} subscription: {mode: ON_CHANGE path: {${elems.join(' ')}}}}`
}

// influxQL returns a query for the points of an entry's leaf, or of all of its leaves.
function influxQL(root: SchemaNode, target: string, entry: string, leaf: string): string {
  const node = find(root, entry)
  if (!node?.measurement) return ''
  const tag = (s: string) => (s === 'time' ? 'time-' : s)
  const field = leaf ? name(tag(leaf.replace(/^state\//, ''))) : '*'
  const keys = parse(entry).flatMap((e) => e.keys)
  const tags = node.tags ?? []
  const where = [`${name(tags.includes('target') ? 'gnmi-target' : 'target')} = ${literal(target)}`]
  keys.forEach(([, value], i) => {
    if (tags[i] && value !== '*') where.push(`${name(tag(tags[i]!))} = ${literal(value)}`)
  })
  return `SELECT ${field} FROM ${name(node.measurement)} WHERE ${where.join(' AND ')} AND time > now() - 1h`
}
