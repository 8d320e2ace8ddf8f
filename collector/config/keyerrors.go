// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
)

// KeyError is an error about one key of a section, relative to it.
type KeyError struct{ key, message string }

// Error says what is wrong and what was expected.
func (e *KeyError) Error() string { return e.message }

// Key is the key, such as "spool.max-bytes".
func (e *KeyError) Key() string { return e.key }

// KeyErrors are what a Validate method finds. The zero value is none.
type KeyErrors struct{ errs []error }

// Add adds an error about a key.
func (e *KeyErrors) Add(key, format string, args ...any) {
	e.errs = append(e.errs, &KeyError{key, fmt.Sprintf(format, args...)})
}

// Err joins them all; nil when there are none.
func (e *KeyErrors) Err() error { return errors.Join(e.errs...) }
