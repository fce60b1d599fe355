export const slow = await new Promise((resolve) => setTimeout(resolve, 5, 'slow'))
