// SPDX-License-Identifier: Apache-2.0

// A time series, drawn by uPlot.

import { useEffect, useRef } from 'preact/hooks'
import UPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Sample } from './live'

interface Props {
  title: string
  samples: Sample[]
  version: number // changes with the samples
  format: (v: number) => string
}

export function Chart({ title, samples, version, format }: Props) {
  const at = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot>(undefined)
  useEffect(() => {
    const box = at.current! // the reference is empty once the page is left, before the observer ends
    const css = getComputedStyle(document.documentElement)
    const axis = { stroke: css.getPropertyValue('--dim'), grid: { stroke: css.getPropertyValue('--line') } }
    const p = new UPlot(
      {
        width: box.clientWidth,
        height: 160,
        cursor: { y: false },
        legend: { show: false },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 1) * 1.05 || 1] } },
        series: [{}, { stroke: css.getPropertyValue('--accent'), width: 1.5, points: { size: 4 } }],
        axes: [axis, { ...axis, size: 72, values: (_, ticks) => ticks.map(format) }],
      },
      [[], []],
      box,
    )
    plot.current = p
    const resized = new ResizeObserver(() => p.setSize({ width: box.clientWidth, height: 160 }))
    resized.observe(box)
    return () => {
      resized.disconnect()
      p.destroy()
    }
  }, [title])
  useEffect(() => {
    plot.current?.setData([samples.map((s) => s.time / 1000), samples.map((s) => s.value)])
  }, [version, samples])
  const last = samples.at(-1)
  return (
    <figure class="chart">
      <figcaption>
        {title} <b>{last ? format(last.value) : ''}</b>
      </figcaption>
      <div ref={at} role="img" aria-label={`${title}: ${samples.length} values, the newest ${last ? format(last.value) : 'absent'}`} />
    </figure>
  )
}
