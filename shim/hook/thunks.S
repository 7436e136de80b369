/* SPDX-License-Identifier: Apache-2.0 */
/* The two hooks. A thunk saves the integer arguments, gets the name and the target from the router,
 * restores the arguments and jumps. The caller's return address stays on top, so that ld.so sees
 * the true caller (RUNPATH, $ORIGIN, RTLD_NEXT, namespaces). C++ does not guarantee such a tail
 * call. dl* functions take no vector arguments. If the target is null, the thunk returns null.
 *
 * Each hook has both of glibc's versions: that of libdl.so.2 and, as the default, of libc.so.6.
 * dlvsym finds no definition without a version. Imports without a version find these, too.
 *
 * cudaguard_route_dlopen(const char *name, const void *return_address, int mode) -> {name, target}
 */
#if defined(__x86_64__)

	.section .note.gnu.property,"a",@note /* IBT, SHSTK: endbr64 comes first, returns match */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000002, 4, 3, 0

/* \slot: the stack offset of the saved name */
.macro THUNK name, router, slot, old
	.text
	.p2align 4
	.globl	cudaguard_\name
	.type	cudaguard_\name, @function
	.symver	cudaguard_\name, \name\()@GLIBC_\old
	.symver	cudaguard_\name, \name\()@@GLIBC_2.34
cudaguard_\name:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdi, 0
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rsi, 0
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdx, 0
	movq	\slot(%rsp), %rdi
	movl	(\slot - 8)(%rsp), %edx /* the mode is the argument after the name */
	movq	24(%rsp), %rsi
	call	\router
	movq	%rdx, %r11
	movq	%rax, \slot(%rsp)
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdx
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rsi
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdi
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	xorl	%eax, %eax
	ret
	.cfi_endproc
	.size	cudaguard_\name, . - cudaguard_\name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 16, 2.2.5
	THUNK dlmopen, cudaguard_route_dlmopen, 8, 2.3.4

#elif defined(__aarch64__)

	.section .note.gnu.property,"a",@note /* BTI and PAC */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000000, 4, 3, 0

.macro THUNK name, router, slot, old
	.text
	.p2align 4
	.globl	cudaguard_\name
	.type	cudaguard_\name, %function
	.symver	cudaguard_\name, \name\()@GLIBC_\old
	.symver	cudaguard_\name, \name\()@@GLIBC_2.34
cudaguard_\name:
	.cfi_startproc
	hint	#34 /* bti c */
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x30, [sp, #16]
	.cfi_rel_offset x30, 24
	ldr	x0, [sp, #\slot]
	ldr	x2, [sp, #(\slot + 8)] /* the mode is the argument after the name */
	mov	x1, x30
	bl	\router
	mov	x16, x1
	str	x0, [sp, #\slot]
	ldp	x2, x30, [sp, #16]
	.cfi_restore x30
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	cbz	x16, 1f
	br	x16
1:	mov	x0, xzr
	ret
	.cfi_endproc
	.size	cudaguard_\name, . - cudaguard_\name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 0, 2.17
	THUNK dlmopen, cudaguard_route_dlmopen, 8, 2.17

#else
#error "cudaguard knows x86-64 and AArch64"
#endif

	.section .note.GNU-stack,"",%progbits
