// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"fmt"
)

// Mark is the byte order mark, which some editors write in front of a text, and which has no
// meaning in UTF-8.
const Mark = "\ufeff"

// wide lists the byte order marks of other encodings. UTF-32 comes first, because its little-endian
// mark begins with the mark of UTF-16.
var wide = []struct{ mark, name string }{
	{"\xff\xfe\x00\x00", "UTF-32"}, {"\x00\x00\xfe\xff", "UTF-32"}, {"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
}

// Text returns a text without the byte order marks in front of it. It fails if the mark is that of
// UTF-16 or UTF-32.
func Text(text []byte) ([]byte, error) {
	for _, w := range wide {
		if bytes.HasPrefix(text, []byte(w.mark)) {
			return nil, errors.New("is " + w.name + "; save it as UTF-8")
		}
	}
	for bytes.HasPrefix(text, []byte(Mark)) {
		text = text[len(Mark):]
	}
	return text, nil
}

// ReadText reads a regular file as [Read] does, and returns its contents as [Text] does.
func ReadText(path string) ([]byte, error) {
	text, err := Read(path)
	if err != nil {
		return nil, err
	}
	if text, err = Text(text); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return text, nil
}
