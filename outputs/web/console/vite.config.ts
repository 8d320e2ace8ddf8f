// SPDX-License-Identifier: Apache-2.0

// Builds the console into ../dist, which outputs/web embeds.

import { readFileSync } from 'node:fs'
import { defineConfig } from 'vite'

const bundled = ['preact', 'uplot', 'cytoscape']

export default defineConfig({
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        // Stable names: a browser confirms its copy by the file's tag.
        entryFileNames: 'assets/[name].js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name][extname]',
      },
    },
  },
  plugins: [
    {
      name: 'licenses',
      generateBundle() {
        const text = bundled.map((name) => {
          const at = `node_modules/${name}/`
          const { version } = JSON.parse(readFileSync(at + 'package.json', 'utf8')) as { version: string }
          return `${name} ${version}\n\n${readFileSync(at + 'LICENSE', 'utf8').trim()}\n`
        })
        this.emitFile({ type: 'asset', fileName: 'licenses.txt', source: text.join('\n----\n\n') })
      },
    },
  ],
})
