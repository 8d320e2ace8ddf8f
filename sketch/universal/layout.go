// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// maxLevels is the largest number of levels.
const maxLevels = 16

// maxWays is the number of ways that have a hash constant.
const maxWays = 4

// ErrMismatch is wrapped by errors about sketches or cells that do not fit each other. It
// wraps sketch.ErrMismatch.
var ErrMismatch = fmt.Errorf("%w: layouts differ", sketch.ErrMismatch)

// Layout is the shape of a universal sketch. An instance of p4/programs/include/univmon.p4 has the
// same shape.
type Layout struct {
	Key     flow.Fields // the fields that identify a flow, at least one
	Levels  int         // sampling levels, 2 to 16
	Rows    int         // rows of a level's Count sketch, 3 to 5
	Columns int         // counters per row of the first eight levels; a quarter in the others
	Ways    int         // possible slots of a heavy key in a level, 2 to 4
	Slots   int         // heavy keys per way of the first eight levels; a quarter in the others
}

// Fit returns the largest layout with at most this number of bytes, in the proportions of the P4
// program: 16 levels of 3 rows, 4 ways, and 40 counters per row for each heavy-key slot of a way.
func Fit(key flow.Fields, memory int) (Layout, error) {
	const columns = 40
	l := Layout{Key: key, Levels: maxLevels, Rows: 3, Columns: columns, Ways: 4, Slots: 1}
	if memory < 0 || memory > sketch.MaxMemory {
		return l, fmt.Errorf("%w: universal: memory: %d bytes; expected up to %d", sketch.ErrConfig, memory,
			sketch.MaxMemory)
	}
	if memory < l.Bytes() {
		return l, fmt.Errorf("%w: universal: memory: %d bytes; %d are the least for keys of %v", sketch.ErrConfig,
			memory, l.Bytes(), key)
	}
	four := l // a column or slot of each deep level, and four of each wide one
	four.Columns, four.Slots = 4*columns, 4
	l.Slots = max(4*(memory/four.Bytes()), 1)
	four.Columns = 4
	l.Columns = (memory - 4*l.HeavyCells()) / four.CounterCells()
	for l.Bytes() > memory { // columns of deep levels are rounded up
		l.Columns--
	}
	return l, l.Validate()
}

// Validate returns an error that wraps sketch.ErrConfig for an invalid layout.
func (l Layout) Validate() error {
	if err := l.check(); err != nil {
		return fmt.Errorf("%w: %w", sketch.ErrConfig, err)
	}
	return nil
}

func (l Layout) check() error {
	switch {
	case l.Key == 0 || l.Key&^flow.FiveTuple != 0:
		return fmt.Errorf("universal: key %v; expected fields of a 5-tuple, such as src or src+dst", l.Key)
	case l.Levels < 2 || l.Levels > maxLevels:
		return fmt.Errorf("universal: %d levels; expected 2 to %d", l.Levels, maxLevels)
	case l.Rows < 3 || l.Rows > len(rowhash.Odd):
		return fmt.Errorf("universal: %d rows; expected 3 to %d", l.Rows, len(rowhash.Odd))
	case l.Columns < 1 || l.Columns > 1<<24:
		return fmt.Errorf("universal: %d columns; expected 1 to %d", l.Columns, 1<<24)
	case l.Ways < 2 || l.Ways > maxWays:
		return fmt.Errorf("universal: %d ways; expected 2 to %d", l.Ways, maxWays)
	case l.Slots < 1 || l.Slots > 1<<20:
		return fmt.Errorf("universal: %d slots; expected 1 to %d", l.Slots, 1<<20)
	case l.Bytes() > sketch.MaxMemory:
		return fmt.Errorf("universal: %d bytes; expected up to %d", l.Bytes(), sketch.MaxMemory)
	}
	return nil
}

// Words returns the number of 32-bit cells of a heavy-key slot: the count, the key's hash and the
// key.
func (l Layout) Words() int { return wordKey + l.Key.Words() }

// wideLevels is the number of levels that have all columns and slots. Deeper levels have a quarter:
// they hold 1/256 of the flows together, which are a few flows, unless there are millions.
const wideLevels = 8

// shift returns the bits by which the columns and slots of a level are fewer.
func shift(level int) int {
	if level < wideLevels {
		return 0
	}
	return 2
}

// columns returns the counters of a row of a level. A column of a deep level takes the flows of
// four columns.
func (l *Layout) columns(level int) int { return (l.Columns-1)>>shift(level) + 1 }

// slots returns the heavy keys of a way of a level.
func (l *Layout) slots(level int) int { return (l.Slots-1)>>shift(level) + 1 }

// before returns the number of cells of the levels before a level, from the numbers of cells of a
// wide and of a deep level.
func before(level, wide, deep int) int {
	return min(level, wideLevels)*wide + max(level-wideLevels, 0)*deep
}

// counter returns the first counter of a level.
func (l *Layout) counter(level int) int {
	return l.Rows * before(level, l.Columns, l.columns(wideLevels))
}

// heavy returns the first heavy-key slot of a level.
func (l *Layout) heavy(level int) int { return l.Ways * before(level, l.Slots, l.slots(wideLevels)) }

// CounterCells returns the number of counters: level-major, then row, then column.
func (l Layout) CounterCells() int { return l.counter(l.Levels) }

// HeavyCells returns the number of cells of the heavy-key slots: level-major, then way, then slot,
// then word.
func (l Layout) HeavyCells() int { return l.heavy(l.Levels) * l.Words() }

// Bytes returns the size of one bank.
func (l Layout) Bytes() int { return 4 * (l.CounterCells() + l.HeavyCells()) }

func (l Layout) String() string {
	return fmt.Sprintf("%v: %d levels of %d rows by %d columns, %d by %d heavy keys", l.Key, l.Levels, l.Rows,
		l.Columns, l.Ways, l.Slots)
}
