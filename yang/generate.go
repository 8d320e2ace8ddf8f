// SPDX-License-Identifier: Apache-2.0

package yang

//go:generate go run ./internal/pathdoc
//go:generate go test -vet=off -run TestHostSchema . -update
