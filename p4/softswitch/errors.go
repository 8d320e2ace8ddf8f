// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"errors"
	"fmt"
)

// The kinds of failure a caller decides by, with errors.Is. A method's error is an [*Error] that wraps one of them.
var (
	// ErrNotFound: no table, object, entry, index or port of that name.
	ErrNotFound = errors.New("not found")
	// ErrExists: an entry with that key, or an object with that id, is there already.
	ErrExists = errors.New("already exists")
	// ErrFull: the table or object has as many entries as its size allows.
	ErrFull = errors.New("full")
	// ErrInvalid: a value out of range, of the wrong kind, or missing.
	ErrInvalid = errors.New("invalid")
	// ErrConst: the program made this constant: const entries, a const default action.
	ErrConst = errors.New("constant")
	// ErrInUse: a member or group is referred to and cannot be deleted.
	ErrInUse = errors.New("in use")
	// ErrNoProgram: no program is loaded yet.
	ErrNoProgram = errors.New("no program loaded")
	// ErrClosed: the switch was closed.
	ErrClosed = errors.New("switch closed")
	// ErrNotImplemented: this engine has no such thing.
	ErrNotImplemented = errors.New("not implemented")
)

// Error says which object of the switch a call failed on and why.
type Error struct {
	Object string // what the call was about: `table "MyIngress.ipv4_lpm"`
	Detail string // what was wrong with which value, and what was expected
	Kind   error  // one of the Err values of this package
}

// Error returns "OBJECT: KIND: DETAIL".
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", e.Object, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", e.Object, e.Kind, e.Detail)
}

// Unwrap returns the kind, for errors.Is.
func (e *Error) Unwrap() error { return e.Kind }

func fail(kind error, object, format string, args ...any) error {
	return &Error{Object: object, Detail: fmt.Sprintf(format, args...), Kind: kind}
}
